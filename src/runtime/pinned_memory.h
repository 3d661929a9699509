// What it is: the process's pinned memory: one caching allocator for all devices of the driver.
// Ordering: see mojo/pinned.h. Threads: any. Errors: Status.
#pragma once

#include <mutex>
#include <unordered_map>

#include "memory/pinned_allocator.h"
#include "runtime/memory_sources.h"

namespace mojo::detail {
class DeviceState;
}

namespace mojo::runtime {

// Gets blocks by way of the device that is asked for them and returns each to the device that gave it.
class DevicePinnedSource final : public memory::PinnedSource {
 public:
  Status allocate(std::uint64_t bytes, void*& out) noexcept override;
  Status free(void* ptr, std::uint64_t bytes) noexcept override;

 private:
  friend class PinnedMemory;
  std::mutex mutex_;
  std::unordered_map<void*, detail::DeviceState*> owners_;
};

class PinnedMemory {
 public:
  static PinnedMemory& instance() noexcept;  // leaked on purpose: tensors may be freed after static destruction
  // Null until the first allocation: asking whether memory is pinned must not make anything.
  static PinnedMemory* if_used() noexcept;

  Status allocate(detail::DeviceState& device, std::uint64_t bytes, memory::PinnedAllocation& out) noexcept;
  memory::PinnedAllocator& allocator() noexcept { return allocator_; }

 private:
  PinnedMemory() : allocator_(source_, fences_) {}
  DevicePinnedSource source_;
  ClockFenceSource fences_;
  memory::PinnedAllocator allocator_;
};

}  // namespace mojo::runtime
