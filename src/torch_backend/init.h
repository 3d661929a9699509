// What it is: the one function that makes torch know us. Loading the library changes nothing in torch.
// Ordering: none. Opens no device and starts no thread. Threads: any; the second call does nothing.
// Errors: c10::Error if a setting does not parse, the driver is not there, or another PrivateUse1 backend is
//   registered; then nothing has been changed.
#pragma once

#include "mojo/export.h"

namespace mojo::torch_backend {

inline constexpr const char* backend_name = "mojo";

// Registers name, guard, hooks, device allocator, pinned allocator and autocast's rules.
MOJO_API void register_backend();

}  // namespace mojo::torch_backend
