// What it is: HostEvent, a versioned marker: each record on a queue gives it a new Record.
// Ordering: as driver.h says for Event. Threads: any. Errors: as driver.h; recording on a queue of another device
//   than the one that made the event is `failed_precondition`.
#pragma once

#include <atomic>
#include <memory>

#include "driver/driver.h"
#include "drivers/host/scheduler.h"

namespace mojo::host {

class HostEvent final : public driver::Event {
 public:
  HostEvent(std::shared_ptr<Scheduler> scheduler, int device, const driver::EventOptions& options) noexcept
      : scheduler_(std::move(scheduler)), device_(device), timing_(options.timing) {}
  ~HostEvent() override;

  Status query(bool& complete) noexcept override;
  Status synchronize() noexcept override;
  Status elapsed_since(driver::Event& start, double& milliseconds) noexcept override;

  // Records on `queue`, whose device the caller has checked.
  Status record_on(QueueCore& queue, std::uint64_t tag) noexcept;
  Status wait_on(QueueCore& queue, std::uint64_t tag) noexcept;
  int device() const noexcept { return device_; }

 private:
  Record* latest() noexcept;  // with a reference, or null

  const std::shared_ptr<Scheduler> scheduler_;
  base::SmallLock lock_;
  std::atomic<Record*> latest_{nullptr};  // written under the lock
  const int device_;
  const bool timing_;
};

}  // namespace mojo::host
