// What it is: the inside of CachingAllocator. caching_allocator.cpp hands out and takes back, caching_allocator_grow.cpp is
//   what happens when nothing fits, caching_allocator_report.cpp tells about it.
// Ordering: see caching_allocator.h.
// Threads: a function that takes a Lock is entered and left with it held and gives it up around calls of the driver; a
//   private one that takes none runs with the mutex held throughout.
// Errors: those that are not noexcept throw std::bad_alloc, which caching_allocator.cpp turns into a Status.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "memory/block_pool.h"
#include "memory/caching_allocator.h"
#include "memory/pending_uses.h"

namespace mojo::memory {

class CachingAllocator::Impl {
 public:
  Impl(const CachingAllocator* home, SegmentSource& segments, FenceSource& fences, CachingAllocatorOptions options);
  ~Impl();

  Status allocate(std::uint64_t bytes, StreamUid stream, Allocation& out);
  Status free(Block* block) noexcept;
  Status free(DevicePtr ptr) noexcept;
  Status record_stream(Block* block, StreamUid stream);
  Status record_stream(DevicePtr ptr, StreamUid stream);
  Allocation find(DevicePtr ptr) noexcept;
  Status empty_cache();

  void set_limit(std::uint64_t bytes) noexcept;
  std::uint64_t limit() noexcept;
  DeviceStatistics statistics();
  void reset_peak_statistics() noexcept;
  void reset_accumulated_statistics() noexcept;
  std::vector<SegmentSnapshot> snapshot();

 private:
  using Lock = PendingUses::Lock;
  struct Request {
    std::uint64_t bytes;
    std::uint64_t size;  // rounded
    StreamUid stream;
    BlockPool& pool;
  };

  // A free that finds streams in the way goes through at most this many of them on each allocation.
  static constexpr std::size_t streams_swept_per_allocation = 4;
  // How often an allocation is begun anew because others were returning memory when it failed.
  static constexpr int allocation_attempts = 8;

  BlockPool& pool_of(const Block& block) noexcept { return pool_of(*block.segment); }
  BlockPool& pool_of(const Segment& segment) noexcept {
    return segment.allocator == &pools_[0].ranges ? pools_[0] : pools_[1];
  }
  Block* find_block(DevicePtr ptr) const noexcept;
  bool is_live(const Block* block) const noexcept { return block->home == home_ && block->use == Block::Use::taken; }
  static Status not_live(const char* action, DevicePtr ptr);

  void hand_out(Block& block, const Request& request, Allocation& out) noexcept;
  Status free_locked(Lock& lock, Block& block) noexcept;
  Status record_stream_locked(Block& block, StreamUid stream);
  // The last use of a freed block is done: it is free for `owner`, for others from `sequence` on.
  void finish_free(Block& block, StreamUid owner, std::uint64_t sequence) noexcept;
  auto finisher() noexcept {
    return [this](UsedItem& item) {
      auto& block = static_cast<Block&>(item);
      finish_free(block, block.owner, block.sequence);
    };
  }
  // Everything that is known to be complete becomes everyone's.
  void settle() noexcept;
  void update_split_statistics() noexcept;

  // What happens when nothing fits, step by step.
  Status allocate_slowly(Lock& lock, const Request& request, Block*& out);
  Block* reuse(const Request& request);
  void take_over_pending(const Request& request) noexcept;
  bool is_oversize(std::uint64_t size) const noexcept { return size > options_.policy.max_split_bytes; }
  std::uint64_t reserved_with(std::uint64_t bytes) const noexcept;  // what would be reserved with so many bytes more
  bool past_threshold(const Request& request) const noexcept;
  Status grow(Lock& lock, const Request& request, std::uint64_t bytes, Block*& out);  // a segment of so many bytes
  Status grow(Lock& lock, const Request& request, Block*& out);
  Status release_cached(Lock& lock);
  bool waiting_could_help(Lock& lock, const Request& request) noexcept;
  bool wait_for_streams(Lock& lock);
  bool wait_for_others(Lock& lock, std::uint64_t seen) noexcept;
  Status out_of_memory(Lock& lock, const Request& request);
  void end_flight() noexcept;

  const CachingAllocator* const home_;
  SegmentSource& segments_;
  FenceSource& fences_;
  const CachingAllocatorOptions options_;

  std::mutex mutex_;
  std::array<BlockPool, 2> pools_;
  PendingUses pending_;
  DeviceStatistics stats_;
  std::uint64_t limit_ = 0;
  std::uint64_t growing_bytes_ = 0;  // being asked of the device just now
  // For whoever is about to report out of memory while others are getting or returning segments.
  std::uint64_t progress_ = 0;  // counts blocks freed and segments returned
  int in_flight_ = 0;           // threads in SegmentSource
  int waiters_ = 0;
  std::condition_variable changed_;
};

}  // namespace mojo::memory
