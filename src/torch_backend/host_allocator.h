// What it is: pinned host memory as torch wants it: the at::HostAllocator over the runtime's pinned allocator.
// Ordering: record_event keeps a block, once dropped, from being reused before the work queued on a stream is done.
// Threads: any. Errors: c10::OutOfMemoryError or c10::Error; dropping never throws.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

namespace mojo::torch_backend {

// The process's one pinned allocator; lives as long as the process. It allocates by way of the current device.
at::HostAllocator* host_allocator() noexcept;

}  // namespace mojo::torch_backend
