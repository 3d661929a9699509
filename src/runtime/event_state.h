// What it is: EventState, what a DeviceEvent owns: the driver's event and what its latest record stands for.
// Ordering: the record carries the stream, the number and the stream's clock at the record.
// Threads: any; `mutex` guards the record and is taken before a stream's mutex, never after.
// Errors: Status.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "base/small_lock.h"
#include "driver/driver.h"
#include "mojo/device_event.h"
#include "ordering/clock.h"

namespace mojo::detail {

class DeviceState;
class StreamState;

class EventState {
 public:
  EventState(DeviceState& device, EventOptions options, std::unique_ptr<driver::Event> event) noexcept
      : device_(device), options_(options), event_(std::move(event)) {}

  DeviceState& device() const noexcept { return device_; }
  const EventOptions& options() const noexcept { return options_; }
  bool recorded() noexcept;

  Status record(StreamState& stream) noexcept;
  Status make_wait(StreamState& stream) noexcept;  // `stream` waits for the latest record
  Status query(bool& complete) noexcept;
  // Blocks the host; afterwards `stream` and `number` say what the record stood for (null if never recorded).
  Status synchronize(StreamState*& stream, std::uint64_t& number) noexcept;
  Status elapsed_since(EventState& start, double& milliseconds) noexcept;

  // Forgets the record, for the pool of events.
  void reset() noexcept {
    stream_ = nullptr;
    known_complete_.store(false, std::memory_order_relaxed);
  }

 private:
  DeviceState& device_;
  const EventOptions options_;
  const std::unique_ptr<driver::Event> event_;
  base::SmallLock mutex_;
  StreamState* stream_ = nullptr;  // of the latest record; null: never recorded
  std::uint64_t number_ = 0;
  // Whether the latest record is known to be complete: a query that need not lock. Written under the mutex.
  std::atomic<bool> known_complete_{false};
  ordering::Clock clock_;
};

}  // namespace mojo::detail
