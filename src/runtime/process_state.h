// What it is: what is true of the whole process: forked after use, shutting down; and the one blocking wait.
// Ordering: none. Threads: any. Errors: usable() says why a call is refused.
#pragma once

#include <atomic>
#include <utility>

#include "driver/driver.h"
#include "mojo/process.h"
#include "mojo/status.h"

namespace mojo::runtime {

enum class Phase : int { running, forked, shutting_down };
extern std::atomic<Phase> process_phase;
Status refusal() noexcept;

// Success, or why no call may go on: inside a host task, in a child forked after use, after shutdown. Cheap, since every
// call of the device API asks.
inline Status usable() noexcept {
  if (process_phase.load(std::memory_order_relaxed) == Phase::running && !driver::in_host_task()) [[likely]]
    return {};
  return refusal();
}

// Arms the fork and exit handlers; called when the first device is opened.
void device_was_opened() noexcept;

// Marks the process as shutting down; true for the first caller.
bool begin_shut_down() noexcept;

// For tests that bring a new registry up after a shutdown.
void reset_process_state_for_test() noexcept;

// Counts a wait of the host that there was no need for, since the work was complete.
void count_host_wait() noexcept;

// Held around a wait of the host: counts it and runs the binding's hooks. No lock of the library is held meanwhile.
class HostWait {
 public:
  HostWait() noexcept;
  ~HostWait();
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

 private:
  WaitHooks hooks_;
  void* token_;
};

// Runs `wait`, which blocks the calling thread. Every blocking wait of the library goes through here.
template <class F>
auto host_wait(F&& wait) noexcept(noexcept(wait())) {
  const HostWait scope;
  return std::forward<F>(wait)();
}

}  // namespace mojo::runtime
