// What it is: HostTask, a piece of host code on a stream. A leaf of the public vocabulary: every layer may include it.
// Ordering: runs once all work queued before it on its stream is done; later work of the stream runs after it.
// Threads: runs on a thread of the driver, which must not call the device API (such a call is refused with an error).
// Errors: a Status other than success is kept on the stream and raised by its next synchronizing call.
#pragma once

#include "mojo/status.h"

namespace mojo {

// Once a call has queued it, exactly one of `run` and `drop` is called, exactly once, and consumes `state`. `drop` is
// called instead of `run` when the work will never run (process exit, lost device); null means there is nothing to
// release. A call that fails to queue it calls neither: `state` is still its caller's.
struct HostTask {
  Status (*run)(void* state) noexcept = nullptr;
  void (*drop)(void* state) noexcept = nullptr;
  void* state = nullptr;
  const char* name = "host task";  // static storage; names the work in traces and error texts
};

}  // namespace mojo
