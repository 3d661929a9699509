// What it is: HostQueue, the handle by which the runtime uses one queue of the host device.
// Ordering: FIFO. Threads: any. Errors: as driver.h; calls from inside a host task are refused.
#pragma once

#include <functional>
#include <memory>

#include "driver/driver.h"
#include "drivers/host/scheduler.h"

namespace mojo::host {

class HostQueue final : public driver::Queue {
 public:
  // `single_queue`: one of several handles on a device's only queue, with the rules of such a device. `release` is
  // called instead of closing the queue.
  HostQueue(std::shared_ptr<Scheduler> scheduler, QueueCore* core, driver::FailureSink* failures,
            std::function<void()> release);
  ~HostQueue() override;

  Status launch(const driver::Launch& launch, std::uint64_t tag) noexcept override;
  Status copy(const driver::Copy& copy, std::uint64_t tag) noexcept override;
  Status fill(const driver::Fill& fill, std::uint64_t tag) noexcept override;
  Status host_task(const driver::HostTask& task, std::span<const Access> accesses, std::uint64_t tag) noexcept override;
  Status record(driver::Event& event, std::uint64_t tag) noexcept override;
  Status wait(driver::Event& event, std::uint64_t tag) noexcept override;
  Status wait_value(const std::uint64_t* address, std::uint64_t value, std::uint64_t tag) noexcept override;
  Status write_value(std::uint64_t* address, std::uint64_t value, std::uint64_t tag) noexcept override;
  Status delay(std::uint64_t nanoseconds, std::uint64_t tag) noexcept override;
  Status query(bool& complete) noexcept override;
  Status synchronize() noexcept override;
  std::uint64_t completed_tag() const noexcept override { return core_->completed_tag.load(std::memory_order_acquire); }
  Status begin_capture() noexcept override;
  Status end_capture() noexcept override;
  void* native_handle() noexcept override { return core_; }
  int priority() const noexcept override { return core_->priority; }

 private:
  Status admit(const char* call) noexcept;
  Status unsupported(const char* call) const;

  const std::shared_ptr<Scheduler> scheduler_;
  QueueCore* const core_;  // one reference
  driver::FailureSink* const failures_;
  const std::function<void()> release_;  // set for a device with a single queue
};

}  // namespace mojo::host
