// What it is: PinnedAllocator, page-locked host memory, cached by exact size and found by any address inside it.
// Ordering: a freed block is handed out again only when every recorded use of it is complete: the host writes to it at
//   once, so being ordered is not enough. Enqueues nothing (a FenceSource may record fences for recorded uses).
// Threads: every method may be called from any thread; one mutex, and no call of the driver under it. free never blocks.
// Errors: Status; an address that is not in a live block is invalid_argument and changes nothing.
#pragma once

#include <cstdint>
#include <memory>

#include "memory/sources.h"
#include "memory/statistics.h"

namespace mojo::memory {

struct PinnedBlock;

struct PinnedAllocatorOptions {
  // Unused blocks are kept up to this many bytes, or as many as are in use if that is more; beyond it the longest unused
  // go back to the driver when the next block has to be got from it.
  std::uint64_t keep_bytes = std::uint64_t{256} << 20;
};

struct PinnedAllocation {
  void* ptr = nullptr;
  PinnedBlock* block = nullptr;
  std::uint64_t bytes = 0;  // at least what was asked
};

class PinnedAllocator {
 public:
  PinnedAllocator(PinnedSource& source, FenceSource& fences, PinnedAllocatorOptions options = {});
  // Returns all memory, live or not: the caller has seen to it that no queued work uses it.
  ~PinnedAllocator();
  PinnedAllocator(const PinnedAllocator&) = delete;
  PinnedAllocator& operator=(const PinnedAllocator&) = delete;

  // Zero bytes give a null PinnedAllocation.
  Status allocate(std::uint64_t bytes, PinnedAllocation& out) noexcept;
  Status free(PinnedBlock* block) noexcept;  // null is a no-op
  Status free(const void* ptr) noexcept;     // the address allocate gave

  // The block around `ptr` is used by operations up to `use`, a queued copy for instance.
  Status record_use(const void* ptr, Position use) noexcept;
  Status record_use(PinnedBlock* block, Position use) noexcept;
  // The block is used by whatever is enqueued on `stream` up to when it is freed.
  Status record_stream(const void* ptr, StreamUid stream) noexcept;
  Status record_stream(PinnedBlock* block, StreamUid stream) noexcept;

  // What a handle of a live block stands for.
  static PinnedAllocator& owner_of(const PinnedBlock* block) noexcept;
  static PinnedAllocation allocation_of(PinnedBlock& block) noexcept;
  // The live block around an address; null if there is none. O(log n).
  PinnedAllocation find(const void* ptr) const noexcept;

  // Returns to the driver every block that is unused. Does not wait.
  Status empty_cache() noexcept;

  PinnedStatistics statistics() const;
  void reset_peak_statistics() noexcept;
  void reset_accumulated_statistics() noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mojo::memory
