// What it is: the switch with which the engine asks core for the shapes of an op's outputs: core's own code runs on the
//   device tensors, with allocation switched off.
// Ordering: none. Threads: the switch belongs to the calling thread. Errors: none.
#pragma once

namespace mojo::ops {

// While it is on, the factories give tensors without memory, and nothing may be enqueued.
inline bool& shape_probe() noexcept {
  static thread_local constinit bool on = false;
  return on;
}

}  // namespace mojo::ops
