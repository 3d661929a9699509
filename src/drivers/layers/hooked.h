// What it is: a layer that tells a CallHook of every call that can fail, before and after; `faulty` and `recorded`
//   are hooks.
// Ordering: `before` and `after` run on the calling thread around the call. Threads: the hook must bear any.
// Errors: a failure that `before` returns is the call's result, and the driver beneath is not called.
#pragma once

#include <cstdint>
#include <memory>

#include "driver/driver.h"

namespace mojo::layers {

// One call of the driver contract.
struct CallInfo {
  const char* name = "";      // the method's name, "copy" for instance
  int device = -1;            // -1: a call of the driver itself
  int queue = -1;             // number of the queue on its device in order of creation; -1: not a call of a queue
  std::uint64_t tag = 0;      // of an enqueue
  std::uint64_t bytes = 0;    // of a copy, a fill, an allocation, an image, a source
  std::uint64_t address = 0;  // of what is freed, filled or copied to; of an event (an identity, no more)
};

class CallHook {
 public:
  virtual ~CallHook() = default;
  virtual Status before(const CallInfo& call) noexcept = 0;
  virtual void after(const CallInfo& call, const Status& result) noexcept = 0;
};

// Calls that give something back (frees, destructors, shut_down) and plain questions (capabilities, native_handle,
// completed_tag) are not told of.
std::unique_ptr<driver::Driver> make_hooked(std::unique_ptr<driver::Driver> inner, std::shared_ptr<CallHook> hook);

}  // namespace mojo::layers
