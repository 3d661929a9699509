// What it is: pinned (page-locked) host memory from a caching allocator, portable between the devices of the driver.
// Ordering: pinned_record_use keeps a block, once freed, from being reused before the work queued on a stream so far
//   is done. The copies of DeviceStream do this themselves.
// Threads: any. Errors: allocation throws mojo::OutOfMemory or mojo::Error; free never throws.
#pragma once

#include <cstdint>

#include "mojo/device_context.h"
#include "mojo/device_stream.h"
#include "mojo/export.h"

namespace mojo {

struct PinnedAllocation {
  void* ptr = nullptr;
  void* handle = nullptr;  // frees it
  std::uint64_t bytes = 0;
};

// Pinned memory by way of device `context`. 0 bytes gives a null allocation.
MOJO_API PinnedAllocation pinned_allocate(const DeviceContext& context, std::uint64_t bytes);
MOJO_API void pinned_free(void* handle) noexcept;
// Whether `ptr` lies anywhere inside live pinned memory of this process. Opens no device; safe after a fork.
MOJO_API bool pinned_contains(const void* ptr) noexcept;
// Marks the pinned block that contains `ptr` as used by the work queued on `stream` so far; false if there is none.
MOJO_API bool pinned_record_use(const void* ptr, DeviceStream stream);
MOJO_API void pinned_empty_cache();
MOJO_API PinnedStatistics pinned_statistics();
MOJO_API void pinned_reset_peak_statistics();
MOJO_API void pinned_reset_accumulated_statistics();

}  // namespace mojo
