// What it is: BlockPool, the small or the large blocks of a device: how sizes round, what a segment measures, and which
//   free block a stream may have. The sizes are those of CUDA's allocator, so that figures agree.
// Ordering: a block is found for stream R only if it is R's own, everyone's, complete, or ordered before R's next operation.
// Threads: guarded by its allocator's mutex; calls the [locked] methods of the FenceSource.
// Errors: as RangeAllocator.
#pragma once

#include <cstdint>
#include <limits>

#include "memory/range_allocator.h"
#include "memory/sources.h"
#include "memory/statistics.h"
#include "mojo/allocation_policy.h"

namespace mojo::memory {

constexpr std::uint64_t least_block = 512;                    // sizes are multiples of it
constexpr std::uint64_t small_size = std::uint64_t{1} << 20;  // requests up to this are small
constexpr std::uint64_t small_segment = std::uint64_t{2} << 20;
constexpr std::uint64_t large_segment = std::uint64_t{20} << 20;
constexpr std::uint64_t least_own_segment = std::uint64_t{10}
                                            << 20;  // from here on a request gets a segment of its size
constexpr std::uint64_t segment_rounding = std::uint64_t{2} << 20;
constexpr std::uint64_t largest_request = std::uint64_t{1} << 62;  // far from where rounding overflows

constexpr std::uint64_t round_up(std::uint64_t bytes, std::uint64_t multiple) noexcept {
  return (bytes + multiple - 1) / multiple * multiple;
}
constexpr std::uint64_t block_size(std::uint64_t bytes) noexcept {
  return bytes < least_block ? least_block : round_up(bytes, least_block);
}
// The size that the policy gives a request: with steps, the next of them above it.
std::uint64_t block_size(std::uint64_t bytes, const AllocationPolicy& policy) noexcept;
constexpr std::uint64_t segment_size(std::uint64_t block_bytes) noexcept {
  if (block_bytes <= small_size) return small_segment;
  return block_bytes < least_own_segment ? large_segment : round_up(block_bytes, segment_rounding);
}

class BlockPool {
 public:
  // The policy outlives the pool.
  BlockPool(StatType type, const void* home, const AllocationPolicy& policy)
      : type(type),
        ranges(type == StatType::small_pool ? least_block : small_size, home),
        // What is left of a large block must be worth keeping; this also is what ends up as large.
        least_rest_(type == StatType::small_pool ? least_block : small_size + 1),
        policy_(policy) {}

  const StatType type;
  RangeAllocator ranges;

  // Whether the policy lets a block that is large enough serve a request.
  bool serves(const Block& block, std::uint64_t size) const noexcept {
    return splits(size) ? splits(block.size) : block.size - size <= policy_.max_non_split_rounding;
  }
  // A block that `stream` or everyone owns; null if none fits.
  Block* find_own(StreamUid stream, std::uint64_t size) const noexcept {
    Block* block = ranges.best_fit(stream, size);
    return block != nullptr && serves(*block, size) ? block : nullptr;
  }
  Block* take_own(StreamUid stream, std::uint64_t size) noexcept {
    Block* block = find_own(stream, size);
    return block == nullptr ? nullptr : &take(*block, stream, size);
  }
  // Takes a block, or adjacent ones, that other streams own but that are ordered before the next operation of `stream`.
  // First makes everyone's what is complete by now, `take_own` included.
  Block* take_ordered(FenceSource& fences, StreamUid stream, std::uint64_t size) noexcept;
  Block& take(Block& block, StreamUid stream, std::uint64_t size) noexcept {
    return ranges.take(block, size, least_rest(size), stream);
  }
  // Makes everyone's the free blocks that are complete, `except` the own ones of a stream.
  void share_complete(FenceSource& fences, StreamUid except = 0) noexcept;
  // Calls f(owner, sequence) once for each stream that owns free blocks, with the last position among them.
  template <typename F>
  void for_each_owner(F&& f) const;

 private:
  Block* take_run(FenceSource& fences, StreamUid stream, std::uint64_t size) noexcept;
  bool splits(std::uint64_t size) const noexcept { return size <= policy_.max_split_bytes; }
  std::uint64_t least_rest(std::uint64_t size) const noexcept {
    return splits(size) ? least_rest_ : std::numeric_limits<std::uint64_t>::max();
  }

  const std::uint64_t least_rest_;
  const AllocationPolicy& policy_;
};

template <typename F>
void BlockPool::for_each_owner(F&& f) const {
  const FreeBlocks& free = ranges.free_blocks();
  for (auto it = free.lower_bound(FreeOrder::Key{1, 0, 0}); it != free.end();) {
    const StreamUid owner = (*it)->owner;
    std::uint64_t last = 0;
    for (; it != free.end() && (*it)->owner == owner; ++it) last = (*it)->sequence > last ? (*it)->sequence : last;
    f(owner, last);
  }
}

}  // namespace mojo::memory
