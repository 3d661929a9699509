// What it is: device memory as torch wants it: c10::DataPtr over the runtime's caching allocator, and the
//   c10::DeviceAllocator through which torch.accelerator reads its figures.
// Ordering: memory is valid in the order of the stream it was allocated for; dropping it waits for nothing.
//   copy_data enqueues on the current stream of the memory's device.
// Threads: any. Errors: c10::OutOfMemoryError with what was asked, free, allocated and reserved; else c10::Error.
//   Dropping a DataPtr never throws and is safe after a fork and after shutdown.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>

#include "mojo/device_stream.h"
#include "mojo/memory_statistics.h"

namespace mojo::torch_backend {

// Memory of `bytes` bytes for use on the current stream of device `index` (-1: the current device). The DataPtr's
// context is the runtime's allocation handle.
c10::DataPtr allocate(std::size_t bytes, c10::DeviceIndex index);

// Keeps the memory, once dropped, from being reused until the work queued on `stream` at that time is done. Memory that
// is not ours is left alone. The DataPtr may be a view's, a wrapper's or empty.
void record_stream(const c10::DataPtr& data, DeviceStream stream);

// The device whose memory `ptr` points into, -1 if it is none's. Opens no device.
c10::DeviceIndex find_device(const void* ptr) noexcept;

// The process's one allocator; lives as long as the process.
c10::DeviceAllocator* device_allocator() noexcept;

// The runtime's figures in torch's structure.
c10::CachingDeviceAllocator::DeviceStats to_c10(const MemoryStatistics& statistics);

}  // namespace mojo::torch_backend
