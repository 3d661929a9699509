#include "drivers/host/device.h"

#include <algorithm>
#include <fstream>
#include <new>
#include <string>

#include "drivers/host/event.h"
#include "drivers/host/image.h"
#include "drivers/host/queue.h"
#include "drivers/host/random_schedule.h"

namespace mojo::host {
namespace {

constexpr driver::PriorityRange priorities{0, -2};

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

Status no_memory(const char* what) {
  return Status(StatusCode::out_of_memory, std::string("host driver: no host memory for ") + what);
}

}  // namespace

HostDevice::HostDevice(std::shared_ptr<Scheduler> scheduler, int index, const HostOptions& options,
                       std::uint64_t capacity)
    : scheduler_(std::move(scheduler)),
      index_(index),
      single_queue_(options.single_queue),
      single_(std::make_shared<SingleQueue>()),
      memory_(std::make_unique<DeviceMemory>(index, capacity, options.scribble_freed)),
      compiler_(options.compiler, options.preferred_compiler) {}

HostDevice::~HostDevice() {
  // A child of a fork inherits locked locks and a parent's memory: leave both alone.
  if (scheduler_->forked()) static_cast<void>(memory_.release());
}

driver::Capabilities HostDevice::capabilities() const noexcept {
  using enum driver::Capability;
  const driver::Capabilities all = events | multiple_queues | host_functions | wait_values | peer_copies |
                                   host_accessible_memory | portable_pinned_memory | async_host_copies | launch |
                                   compile;
  return single_queue_ ? all.without(events).without(multiple_queues).without(async_host_copies) : all;
}

Status HostDevice::properties(driver::DeviceProperties& out) noexcept {
  try {
    out = {};
    out.name = (single_queue_ ? "Single-queue host device (" : "Host device (") + processor_name() + ")";
    out.total_memory = memory_->info().total;
    out.multiprocessor_count = scheduler_->worker_limit();
    out.max_threads_per_block = static_cast<int>(max_block_threads);
    out.max_block = max_block;
    out.max_grid = max_grid;
    out.max_shared_memory_per_block = max_shared_memory;
    out.max_argument_bytes = max_argument_bytes;
    return {};
  } catch (const std::bad_alloc&) {
    return no_memory("the device's properties");
  }
}

driver::PriorityRange HostDevice::priority_range() const noexcept {
  return single_queue_ ? driver::PriorityRange{0, 0} : priorities;
}

Status HostDevice::allocate(std::uint64_t bytes, DevicePtr& out) noexcept {
  MOJO_RETURN_IF_ERROR(scheduler_->admit_without_worker());
  return memory_->allocate(bytes, out);
}

Status HostDevice::free(DevicePtr ptr) noexcept {
  if (scheduler_->forked()) return {};
  return memory_->free(ptr);
}

Status HostDevice::memory_info(driver::MemoryInfo& out) noexcept {
  if (scheduler_->forked()) return scheduler_->forked_status();
  out = memory_->info();
  return {};
}

Status HostDevice::allocate_pinned(std::uint64_t bytes, void*& out) noexcept {
  MOJO_RETURN_IF_ERROR(scheduler_->admit_without_worker());
  return memory_->allocate_pinned(bytes, out);
}

Status HostDevice::free_pinned(void* ptr) noexcept {
  if (scheduler_->forked()) return {};
  return memory_->free_pinned(ptr);
}

Status HostDevice::allocate_value(std::uint64_t*& out) noexcept {
  MOJO_RETURN_IF_ERROR(scheduler_->admit_without_worker());
  return scheduler_->values.allocate(out);
}

Status HostDevice::with_value(const std::uint64_t* address, const char* call, ValueSlot*& slot) noexcept {
  slot = scheduler_->values.acquire(address);
  if (slot != nullptr) return {};
  return Status(StatusCode::invalid_argument,
                std::string("host driver: ") + call + " of an address that allocate_value did not give");
}

Status HostDevice::free_value(std::uint64_t* address) noexcept {
  if (scheduler_->forked()) return {};
  ValueSlot* slot = nullptr;
  MOJO_RETURN_IF_ERROR(with_value(address, "free_value", slot));
  scheduler_->retire_value(*slot);
  scheduler_->values.release(slot);
  return {};
}

Status HostDevice::signal_value(std::uint64_t* address, std::uint64_t value) noexcept {
  if (scheduler_->forked()) return scheduler_->forked_status();
  ValueSlot* slot = nullptr;
  MOJO_RETURN_IF_ERROR(with_value(address, "signal_value", slot));
  if (RandomSchedule* random = scheduler_->random()) {
    random->value_stored(*slot, value);
  } else {
    scheduler_->store_value(*slot, value, true);
  }
  scheduler_->values.release(slot);
  return {};
}

Status HostDevice::abandon_value(std::uint64_t* address, const Status& why) noexcept {
  if (scheduler_->forked()) return scheduler_->forked_status();
  ValueSlot* slot = nullptr;
  MOJO_RETURN_IF_ERROR(with_value(address, "abandon_value", slot));
  scheduler_->abandon_value(*slot, why);
  scheduler_->values.release(slot);
  return {};
}

Status HostDevice::create_single_queue(const driver::QueueOptions& options, std::unique_ptr<driver::Queue>& out) {
  std::shared_ptr<SingleQueue> single = single_;
  std::lock_guard guard(single->mutex);
  if (single->core == nullptr) single->core = new QueueCore(*scheduler_, index_, 0);
  QueueCore* const core = single->core;
  core->add_ref();
  try {
    out = std::make_unique<HostQueue>(scheduler_, core, options.failures, [single] {
      QueueCore* last = nullptr;
      {
        std::lock_guard release_guard(single->mutex);
        if (--single->handles == 0) last = std::exchange(single->core, nullptr);
      }
      if (last == nullptr) return;
      last->close(true);
      last->unref();
    });
  } catch (...) {
    core->unref();
    throw;
  }
  ++single->handles;
  return {};
}

Status HostDevice::create_queue(const driver::QueueOptions& options, std::unique_ptr<driver::Queue>& out) noexcept {
  if (scheduler_->forked()) return scheduler_->forked_status();
  if (scheduler_->stopping()) return scheduler_->stopped_status();
  try {
    if (single_queue_) return create_single_queue(options, out);
    const int priority = std::clamp(options.priority, priorities.greatest, priorities.least);
    QueueCore* const core = new QueueCore(*scheduler_, index_, priority);
    try {
      out = std::make_unique<HostQueue>(scheduler_, core, options.failures, nullptr);
    } catch (...) {
      core->unref();
      throw;
    }
    return {};
  } catch (const std::bad_alloc&) {
    return no_memory("a queue");
  }
}

Status HostDevice::create_event(const driver::EventOptions& options, std::unique_ptr<driver::Event>& out) noexcept {
  if (single_queue_) {
    return Status(StatusCode::unsupported, "events are not supported on the single-queue host device");
  }
  if (scheduler_->forked()) return scheduler_->forked_status();
  if (scheduler_->stopping()) return scheduler_->stopped_status();
  out.reset(new (std::nothrow) HostEvent(scheduler_, index_, options));
  return out != nullptr ? Status() : no_memory("an event");
}

Status HostDevice::compiler(driver::Compiler*& out) noexcept {
  out = &compiler_;
  return {};
}

Status HostDevice::load_module(std::span<const std::byte> image, std::unique_ptr<driver::Module>& out) noexcept {
  MOJO_RETURN_IF_ERROR(scheduler_->admit_without_worker());
  try {
    std::shared_ptr<const HostImage> loaded;
    MOJO_RETURN_IF_ERROR(HostImage::load(image, loaded));
    out = std::make_unique<HostModule>(std::move(loaded));
    return {};
  } catch (const std::bad_alloc&) {
    return no_memory("a module");
  }
}

Status HostDevice::enable_peer(driver::Device&) noexcept { return {}; }  // all are one process's memory

Status HostDevice::set_option(std::string_view name, std::string_view value) noexcept {
  if (name == "schedule") return scheduler_->set_schedule(value);
  return Status(StatusCode::unsupported,
                "the host driver has no option '" + std::string(name) + "'; it has 'schedule'");
}

}  // namespace mojo::host
