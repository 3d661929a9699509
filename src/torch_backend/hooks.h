// What it is: the accelerator hooks, torch's second way to the same device functions that the guard has, and to
//   generators, pinned memory and the resizing of storages.
// Ordering: resizing enqueues its copy on the current stream of the storage's device; the rest enqueues nothing.
// Threads: any. Errors: c10::Error; isBuilt, isAvailable, hasPrimaryContext and isPinnedPtr never throw.
#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>

namespace mojo::torch_backend {

// The process's one hooks object; lives as long as the process.
at::PrivateUse1HooksInterface* hooks() noexcept;

}  // namespace mojo::torch_backend
