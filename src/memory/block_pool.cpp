#include "memory/block_pool.h"

#include <algorithm>
#include <bit>

namespace mojo::memory {

std::uint64_t block_size(std::uint64_t bytes, const AllocationPolicy& policy) noexcept {
  constexpr int first_interval = 20;  // from 1 MiB on; smaller requests count as of it
  const int interval = static_cast<int>(std::bit_width(bytes)) - 1 - first_interval;
  const auto last = static_cast<int>(policy.power_of_two_steps.size()) - 1;
  const std::uint64_t steps = policy.power_of_two_steps[static_cast<std::size_t>(std::clamp(interval, 0, last))];
  if (steps <= 1 || bytes <= least_block * steps) return block_size(bytes);
  return block_size(round_up(bytes, std::bit_floor(bytes) / std::bit_floor(steps)));
}

void BlockPool::share_complete(FenceSource& fences, StreamUid except) noexcept {
  const FreeBlocks& free = ranges.free_blocks();
  StreamUid owner = 0;
  std::uint64_t completed = 0;
  for (auto it = free.lower_bound(FreeOrder::Key{1, 0, 0}); it != free.end();) {
    Block& block = **it;
    // Before the block moves. Sharing it may also take away its neighbours that are everyone's, which come earlier.
    ++it;
    if (block.owner == except) continue;
    if (block.owner != owner) {
      owner = block.owner;
      completed = fences.completed(owner);
    }
    if (block.sequence <= completed) ranges.share(block);
  }
}

Block* BlockPool::take_ordered(FenceSource& fences, StreamUid stream, std::uint64_t size) noexcept {
  share_complete(fences, stream);
  if (Block* block = take_own(stream, size)) return block;
  const FreeBlocks& free = ranges.free_blocks();
  Block* best = nullptr;
  for (auto it = free.lower_bound(FreeOrder::Key{1, 0, 0}); it != free.end();) {
    const StreamUid owner = (*it)->owner;
    const std::uint64_t ordered = owner == stream ? 0 : fences.ordered_before(owner, stream);
    if (ordered != 0) {
      it = free.lower_bound(FreeOrder::Key{owner, size, 0});
      for (; it != free.end() && (*it)->owner == owner && (best == nullptr || (*it)->size < best->size); ++it) {
        if ((*it)->sequence <= ordered && serves(**it, size)) best = *it;
      }
    }
    if (owner == std::numeric_limits<StreamUid>::max()) break;
    it = free.lower_bound(FreeOrder::Key{owner + 1, 0, 0});
  }
  if (best != nullptr) return &take(*best, stream, size);
  return ranges.several_owners() && splits(size) ? take_run(fences, stream, size) : nullptr;
}

// Neighbours of different owners do not coalesce by themselves. This does it for one who may have them all.
Block* BlockPool::take_run(FenceSource& fences, StreamUid stream, std::uint64_t size) noexcept {
  StreamUid asked = 0;
  std::uint64_t ordered = 0;
  const auto usable = [&](const Block& block) {
    if (block.use != Block::Use::free) return false;
    if (block.owner == 0 || block.owner == stream) return true;
    if (block.owner != asked) {
      asked = block.owner;
      ordered = std::max(fences.completed(asked), fences.ordered_before(asked, stream));
    }
    return block.sequence <= ordered;
  };
  for (const auto& segment : ranges.segments()) {
    if (segment->size < size || !splits(segment->size)) continue;
    Block* first = nullptr;
    std::uint64_t bytes = 0;
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      if (!usable(*block)) {
        first = nullptr;
        continue;
      }
      if (first == nullptr) {
        first = block;
        bytes = 0;
      }
      bytes += block->size;
      if (bytes < size) continue;
      return first == block ? &take(*block, stream, size)
                            : &ranges.take_run(*first, *block, size, least_rest(size), stream);
    }
  }
  return nullptr;
}

}  // namespace mojo::memory
