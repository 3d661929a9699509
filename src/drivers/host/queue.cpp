#include "drivers/host/queue.h"

#include <new>
#include <string>

#include "drivers/host/event.h"

namespace mojo::host {

HostQueue::HostQueue(std::shared_ptr<Scheduler> scheduler, QueueCore* core, driver::FailureSink* failures,
                     std::function<void()> release)
    : scheduler_(std::move(scheduler)), core_(core), failures_(failures), release_(std::move(release)) {
  core_->failures.store(failures, std::memory_order_release);
}

HostQueue::~HostQueue() {
  // In a forked child the locks may be held by threads that no longer exist: leave everything as it is.
  if (scheduler_->forked()) return;
  if (release_) {
    driver::FailureSink* own = failures_;
    core_->failures.compare_exchange_strong(own, nullptr);
    release_();
  } else {
    core_->close(true);
  }
  core_->unref();
}

Status HostQueue::admit(const char* call) noexcept {
  MOJO_RETURN_IF_ERROR(scheduler_->admit());
  if (driver::in_host_task()) [[unlikely]] {
    return Status(StatusCode::failed_precondition,
                  std::string("host driver: ") + call + " must not be called from a host function");
  }
  return {};
}

Status HostQueue::unsupported(const char* call) const {
  return Status(StatusCode::unsupported, std::string("the host driver does not support ") + call);
}

Status HostQueue::begin_capture() noexcept { return unsupported("begin_capture"); }
Status HostQueue::end_capture() noexcept { return unsupported("end_capture"); }

Status HostQueue::launch(const driver::Launch& launch, std::uint64_t tag) noexcept {
  MOJO_RETURN_IF_ERROR(admit("launch"));
  LaunchState* state = nullptr;
  MOJO_RETURN_IF_ERROR(scheduler_->launches.prepare(launch, state));
  Status status = core_->enqueue(tag, [&](Op& op) {
    op.kind = OpKind::launch;
    op.launch = state;
  });
  if (!status.ok()) scheduler_->launches.unref(state);
  return status;
}

Status HostQueue::copy(const driver::Copy& copy, std::uint64_t tag) noexcept {
  MOJO_RETURN_IF_ERROR(admit("copy"));
  void* const dst = copy.kind == driver::CopyKind::device_to_host ? copy.host_dst : copy.dst.opaque();
  const void* const src = copy.kind == driver::CopyKind::host_to_device ? copy.host_src : copy.src.opaque();
  if (copy.bytes != 0 && (dst == nullptr || src == nullptr)) {
    return Status(StatusCode::invalid_argument, "host driver: copy from or to a null address");
  }
  MOJO_RETURN_IF_ERROR(core_->enqueue(tag, [&](Op& op) {
    op.kind = copy.bytes != 0 ? OpKind::copy : OpKind::nop;
    op.copy = {dst, src, copy.bytes};
  }));
  const bool upload_must_be_done = release_ && copy.kind == driver::CopyKind::host_to_device;
  return copy.host_pageable || upload_must_be_done ? synchronize() : Status();
}

Status HostQueue::fill(const driver::Fill& fill, std::uint64_t tag) noexcept {
  MOJO_RETURN_IF_ERROR(admit("fill"));
  const bool width_valid = fill.width == 1 || fill.width == 2 || fill.width == 4 || fill.width == 8;
  if (!width_valid || fill.bytes % fill.width != 0) {
    return Status(StatusCode::invalid_argument, "host driver: fill of " + std::to_string(fill.bytes) +
                                                    " bytes with a pattern of " + std::to_string(int{fill.width}) +
                                                    " bytes; the pattern has 1, 2, 4 or 8 and divides the range");
  }
  if (fill.bytes != 0 && !fill.dst) return Status(StatusCode::invalid_argument, "host driver: fill of a null address");
  return core_->enqueue(tag, [&](Op& op) {
    op.kind = fill.bytes != 0 ? OpKind::fill : OpKind::nop;
    op.width = fill.width;
    op.fill = {fill.dst.opaque(), fill.bytes, fill.pattern};
  });
}

Status HostQueue::host_task(const driver::HostTask& task, std::span<const Access>, std::uint64_t tag) noexcept {
  MOJO_RETURN_IF_ERROR(admit("host_task"));
  return core_->enqueue(tag, [&](Op& op) {
    op.kind = OpKind::host_task;
    ::new (&op.task) driver::HostTask(task);
  });
}

Status HostQueue::record(driver::Event& event, std::uint64_t tag) noexcept {
  MOJO_RETURN_IF_ERROR(admit("record"));
  auto& marker = static_cast<HostEvent&>(event);
  if (marker.device() != core_->device) {
    return Status(StatusCode::failed_precondition,
                  "host driver: an event of device " + std::to_string(marker.device()) +
                      " cannot be recorded on a queue of device " + std::to_string(core_->device));
  }
  return marker.record_on(*core_, tag);
}

Status HostQueue::wait(driver::Event& event, std::uint64_t tag) noexcept {
  MOJO_RETURN_IF_ERROR(admit("wait"));
  return static_cast<HostEvent&>(event).wait_on(*core_, tag);
}

Status HostQueue::wait_value(const std::uint64_t* address, std::uint64_t value, std::uint64_t tag) noexcept {
  MOJO_RETURN_IF_ERROR(admit("wait_value"));
  ValueSlot* const slot = scheduler_->values.acquire(address);
  if (slot == nullptr) return Status(StatusCode::invalid_argument, "host driver: wait_value on an unknown address");
  Status status = core_->enqueue(tag, [&](Op& op) {
    op.kind = OpKind::wait_value;
    op.abandoned = false;
    op.value = {slot, value};
  });
  if (!status.ok()) scheduler_->values.release(slot);
  return status;
}

Status HostQueue::write_value(std::uint64_t* address, std::uint64_t value, std::uint64_t tag) noexcept {
  MOJO_RETURN_IF_ERROR(admit("write_value"));
  ValueSlot* const slot = scheduler_->values.acquire(address);
  if (slot == nullptr) return Status(StatusCode::invalid_argument, "host driver: write_value on an unknown address");
  Status status = core_->enqueue(tag, [&](Op& op) {
    op.kind = OpKind::write_value;
    op.value = {slot, value};
  });
  if (!status.ok()) scheduler_->values.release(slot);
  return status;
}

Status HostQueue::delay(std::uint64_t nanoseconds, std::uint64_t tag) noexcept {
  MOJO_RETURN_IF_ERROR(admit("delay"));
  return core_->enqueue(tag, [&](Op& op) {
    op.kind = OpKind::delay;
    op.nanoseconds = nanoseconds;
  });
}

Status HostQueue::query(bool& complete) noexcept {
  if (scheduler_->forked()) return scheduler_->forked_status();
  if (release_) {
    // A device with one queue answers only by waiting.
    MOJO_RETURN_IF_ERROR(synchronize());
    complete = true;
    return {};
  }
  const std::uint64_t tag = core_->last_tag.load(std::memory_order_acquire);
  const std::uint64_t target = core_->enqueued.load(std::memory_order_acquire);
  complete = core_->poll(target);
  if (complete) {
    core_->establish(tag);
  } else if (scheduler_->stopping()) {
    return scheduler_->stopped_status();
  }
  return {};
}

Status HostQueue::synchronize() noexcept {
  if (scheduler_->forked()) return scheduler_->forked_status();
  const std::uint64_t tag = core_->last_tag.load(std::memory_order_acquire);
  const std::uint64_t target = core_->enqueued.load(std::memory_order_acquire);
  if (core_->completed.load(std::memory_order_acquire) < target && driver::in_host_task()) {
    return Status(StatusCode::failed_precondition, "host driver: a host task must not wait for a queue");
  }
  MOJO_RETURN_IF_ERROR(core_->wait_completed(target));
  core_->establish(tag);
  return {};
}

}  // namespace mojo::host
