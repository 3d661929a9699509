#include "drivers/host/event.h"

#include <mutex>
#include <utility>

#include "drivers/host/random_schedule.h"

namespace mojo::host {

HostEvent::~HostEvent() {
  if (latest_ != nullptr && !scheduler_->forked()) scheduler_->records.release(latest_);
}

Record* HostEvent::latest() noexcept {
  std::lock_guard guard(lock_);
  if (latest_ != nullptr) latest_->add_ref();
  return latest_;
}

Status HostEvent::query(bool& complete) noexcept {
  if (scheduler_->forked()) return scheduler_->forked_status();
  RandomSchedule* const random = scheduler_->random();
  if (random == nullptr) [[likely]] {
    std::lock_guard guard(lock_);
    complete = latest_ == nullptr || latest_->done();
    return {};
  }
  Record* record = latest();
  complete = record == nullptr || random->poll(*record);
  if (record != nullptr) scheduler_->records.release(record);
  return {};
}

Status HostEvent::synchronize() noexcept {
  if (scheduler_->forked()) return scheduler_->forked_status();
  Record* record = latest();
  if (record == nullptr) return {};
  Status status;
  if (!record->done() && driver::in_host_task()) {
    status = Status(StatusCode::failed_precondition, "host driver: a host task must not wait for an event");
  } else {
    status = scheduler_->wait_record(*record);
  }
  scheduler_->records.release(record);
  return status;
}

Status HostEvent::elapsed_since(driver::Event& other, double& milliseconds) noexcept {
  if (scheduler_->forked()) return scheduler_->forked_status();
  auto& start = static_cast<HostEvent&>(other);
  if (!timing_ || !start.timing_) {
    return Status(StatusCode::invalid_argument, "host driver: elapsed time needs two events made with timing");
  }
  Record* const from = start.latest();
  Record* const to = latest();
  Status status;
  if (from == nullptr || to == nullptr) {
    status = Status(StatusCode::failed_precondition, "host driver: elapsed time needs two events that were recorded");
  } else if (!from->done() || !to->done()) {
    status = Status(StatusCode::failed_precondition, "host driver: elapsed time needs two events that have completed");
  } else {
    milliseconds = static_cast<double>(static_cast<std::int64_t>(to->time - from->time)) * 1e-6;
  }
  if (from != nullptr) scheduler_->records.release(from);
  if (to != nullptr) scheduler_->records.release(to);
  return status;
}

Status HostEvent::record_on(QueueCore& queue, std::uint64_t tag) noexcept {
  RecordPool& pool = scheduler_->records;
  Record* record = nullptr;
  {
    std::lock_guard guard(lock_);
    // Nobody else knows the finished record: use it again, without the pool. Meanwhile there is none, which stands for
    // the same: complete.
    if (latest_ != nullptr && latest_->refs.load(std::memory_order_acquire) == 1 && latest_->done()) {
      record = std::exchange(latest_, nullptr);
    }
  }
  const bool used_before = record != nullptr;
  const std::uint64_t time_before = used_before ? record->time : 0;
  if (record == nullptr && (record = pool.acquire()) == nullptr) {
    return Status(StatusCode::out_of_memory, "host driver: no host memory for an event's record");
  }
  record->reset(&queue, timing_);
  record->add_ref();  // the operation's
  Status status;
  // On an idle queue all work before the record is done already.
  const bool at_once = queue.run_if_idle(tag, [&] {
    if (timing_) record->time = scheduler_->clock.now();
  });
  if (at_once) {
    scheduler_->complete_record(record, false, true);
  } else {
    status = queue.enqueue(tag, [&](Op& op) {
      op.kind = OpKind::record;
      op.record = record;
    });
    if (!status.ok()) {
      record->time = time_before;
      scheduler_->complete_record(record, true, true);
    }
  }
  // Only now may other threads wait for it: a wait that came before the record in some queue could be one that the
  // record itself waits for.
  Record* old = record;
  if (status.ok() || used_before) {
    std::lock_guard guard(lock_);
    if (status.ok() || latest_ == nullptr) old = std::exchange(latest_, record);
  }
  if (old != nullptr) pool.release(old);
  return status;
}

Status HostEvent::wait_on(QueueCore& queue, std::uint64_t tag) noexcept {
  Record* record = nullptr;
  const bool random = scheduler_->random() != nullptr;
  {
    std::lock_guard guard(lock_);
    // The random schedule judges by the decided order, not by what has happened by now. A queue never needs to wait
    // for a record of its own.
    if (latest_ != nullptr && (random || (!latest_->done() && latest_->recorded_on != &queue))) {
      record = latest_;
      record->add_ref();
    }
  }
  if (record == nullptr && queue.run_if_idle(tag, [] {})) return {};
  Status status = queue.enqueue(tag, [&](Op& op) {
    op.kind = OpKind::wait;
    op.record = record;
  });
  if (!status.ok() && record != nullptr) scheduler_->records.release(record);
  return status;
}

}  // namespace mojo::host
