// What it is: the switch with which the engine asks core for the shapes of an op's outputs: core's own code runs on the
//   device tensors, with allocation switched off.
// Ordering: none. Threads: the switch belongs to the calling thread.
// Errors: NotInferable, which the engine catches, where core's code would need more than shapes.
#pragma once

namespace mojo::ops {

// While it is on, the factories give tensors without memory, and nothing may be enqueued.
inline bool& shape_probe() noexcept {
  static thread_local constinit bool on = false;
  return on;
}

// Only running the op can tell the shapes.
struct NotInferable {};

// Called by whatever would touch data.
inline void refuse_while_probing() {
  if (shape_probe()) [[unlikely]]
    throw NotInferable();
}

}  // namespace mojo::ops
