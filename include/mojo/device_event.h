// What it is: DeviceEvent, a marker recorded on streams of one device, again and again.
// Ordering: "recorded on S" marks the work queued on S so far. Versioned: query, synchronize and a stream's wait mean
//   the record that is latest when the call is made. Never recorded counts as complete (E-05, E-06).
// Threads: any thread may use an event; destroying it while records or waits on it are pending is safe.
// Errors: throws mojo::Error; synchronize raises a failure of the recorded stream up to the record (O-08).
#pragma once

#include <cstdint>
#include <utility>

#include "mojo/export.h"

namespace mojo {

namespace detail {
class EventState;
}

struct EventOptions {
  bool timing = false;        // elapsed_ms needs it on both events
  bool blocking = false;      // a host thread in synchronize sleeps instead of spinning first
  bool interprocess = false;  // accepted; an ordinary event (see docs/stream-ordering.md)
};

// Move-only owner, made by DeviceContext::create_event. A moved-from event is empty: only destruction, assignment
// and `empty()` are allowed on it.
class MOJO_API DeviceEvent {
 public:
  DeviceEvent(DeviceEvent&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  DeviceEvent& operator=(DeviceEvent&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~DeviceEvent();

  bool empty() const noexcept { return state_ == nullptr; }
  int device_index() const noexcept;
  bool recorded() const noexcept;  // whether it has ever been recorded

  // Whether the work before the latest record is complete. Does not block; never raises a failure of queued work.
  bool query() const;
  // Blocks the host until the work before the latest record is complete, then raises that stream's oldest failure
  // up to the record, once.
  void synchronize() const;
  // Milliseconds of device time from this event to `end`. Both need timing and a complete record:
  // invalid_argument without timing, failed_precondition when not recorded or not complete.
  double elapsed_ms(const DeviceEvent& end) const;

  // For bindings that store an opaque pointer: gives up ownership, and takes it back.
  detail::EventState* release() noexcept { return std::exchange(state_, nullptr); }
  static DeviceEvent adopt(detail::EventState* state) noexcept { return DeviceEvent(state); }

 private:
  friend class DeviceContext;
  friend class DeviceStream;
  explicit DeviceEvent(detail::EventState* state) noexcept : state_(state) {}
  detail::EventState* state_;
};

}  // namespace mojo
