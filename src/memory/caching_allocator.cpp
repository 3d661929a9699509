#include "memory/caching_allocator.h"

#include <algorithm>
#include <cstdio>
#include <new>
#include <utility>

#include "memory/caching_allocator_impl.h"

namespace mojo::memory {

namespace {

// No segment that requests share is of more than the bound, so that all of them can be used again.
CachingAllocatorOptions rounded(CachingAllocatorOptions options) {
  std::uint64_t& bound = options.policy.max_split_bytes;
  if (bound <= largest_request) bound = round_up(std::max(bound, large_segment), segment_rounding);
  return options;
}

Status host_memory_exhausted() {
  return Status(StatusCode::out_of_memory, "the host has no memory for the allocator's own records");
}

}  // namespace

CachingAllocator::Impl::Impl(const CachingAllocator* home, SegmentSource& segments, FenceSource& fences,
                             CachingAllocatorOptions options)
    : home_(home),
      segments_(segments),
      fences_(fences),
      options_(rounded(std::move(options))),
      pools_{BlockPool(StatType::small_pool, home, options_.policy),
             BlockPool(StatType::large_pool, home, options_.policy)},
      pending_(fences) {
  if (options_.policy.max_split_bytes != AllocationPolicy::unlimited) {
    stats_.max_split_size = static_cast<std::int64_t>(options_.policy.max_split_bytes);
  }
}

CachingAllocator::Impl::~Impl() {
  for (BlockPool& pool : pools_) {
    for (const auto& segment : pool.ranges.segments()) {
      // Nobody is left to tell: the device layer reports what it could not take back.
      (void)segments_.free(DevicePtr{segment->address}, segment->size);
    }
  }
}

Status CachingAllocator::Impl::allocate(std::uint64_t bytes, StreamUid stream, Allocation& out) {
  out = {};
  if (bytes == 0) return {};
  if (stream == 0) return Status(StatusCode::invalid_argument, "allocate: stream 0 is no stream");
  const std::uint64_t size = block_size(std::min(bytes, largest_request), options_.policy);
  const Request request{bytes, size, stream, pools_[size <= small_size ? 0 : 1]};

  Lock lock(mutex_);
  if (bytes > largest_request) return out_of_memory(lock, request);
  request.pool.ranges.note_owner(stream);
  request.pool.ranges.prepare();
  if (!pending_.empty()) pending_.sweep_some(streams_swept_per_allocation, finisher());
  Block* block = request.pool.take_own(stream, size);
  if (block == nullptr) MOJO_RETURN_IF_ERROR(allocate_slowly(lock, request, block));
  hand_out(*block, request, out);
  return {};
}

void CachingAllocator::Impl::hand_out(Block& block, const Request& request, Allocation& out) noexcept {
  block.requested = request.bytes;
  block.sequence = 0;
  const StatType type = request.pool.type;
  stats_.allocation.increase(type, 1);
  stats_.allocated_bytes.increase(type, static_cast<std::int64_t>(block.size));
  stats_.active.increase(type, 1);
  stats_.active_bytes.increase(type, static_cast<std::int64_t>(block.size));
  stats_.requested_bytes.increase(type, static_cast<std::int64_t>(block.requested));
  if (is_oversize(block.size)) stats_.oversize_allocations.increase(1);
  update_split_statistics();
  out = {DevicePtr{block.address}, &block, block.size};
}

Status CachingAllocator::Impl::free(Block* block) noexcept {
  if (block == nullptr) return {};
  Lock lock(mutex_);
  if (!is_live(block)) return Status(StatusCode::invalid_argument, "free: the handle is not of a live allocation");
  return free_locked(lock, *block);
}

Status CachingAllocator::Impl::free(DevicePtr ptr) noexcept {
  if (!ptr) return {};
  Lock lock(mutex_);
  Block* block = find_block(ptr);
  if (block == nullptr || !is_live(block) || block->address != ptr.address) return not_live("free", ptr);
  return free_locked(lock, *block);
}

// M-03, M-04: nothing but the block's own records change; no stream is made to wait for anything.
Status CachingAllocator::Impl::free_locked(Lock& lock, Block& block) noexcept {
  const StatType type = pool_of(block).type;
  stats_.allocation.decrease(type, 1);
  stats_.allocated_bytes.decrease(type, static_cast<std::int64_t>(block.size));
  if (is_oversize(block.size)) stats_.oversize_allocations.decrease(1);
  // The position last: a use that is left out because the owner is ordered after it by now is covered by a position
  // that counts the owner's wait.
  const bool waits = !block.uses.empty() && pending_.start_waiting(block, block.owner);
  const std::uint64_t sequence = fences_.position(block.owner);
  if (!waits) {
    finish_free(block, block.owner, sequence);
    return {};
  }
  block.use = Block::Use::waiting;
  block.sequence = sequence;
  if (pending_.needs_fences()) pending_.record_fences(lock, block);
  return {};
}

void CachingAllocator::Impl::finish_free(Block& block, StreamUid owner, std::uint64_t sequence) noexcept {
  BlockPool& pool = pool_of(block);
  stats_.active.decrease(pool.type, 1);
  stats_.active_bytes.decrease(pool.type, static_cast<std::int64_t>(block.size));
  stats_.requested_bytes.decrease(pool.type, static_cast<std::int64_t>(block.requested));
  pool.ranges.release(block, owner, sequence);
  update_split_statistics();
  ++progress_;
  if (waiters_ > 0) changed_.notify_all();
}

Status CachingAllocator::Impl::record_stream(Block* block, StreamUid stream) {
  if (block == nullptr) return {};
  Lock lock(mutex_);
  if (!is_live(block)) {
    return Status(StatusCode::invalid_argument, "record_stream: the handle is not of a live allocation");
  }
  return record_stream_locked(*block, stream);
}

Status CachingAllocator::Impl::record_stream(DevicePtr ptr, StreamUid stream) {
  if (!ptr) return {};
  Lock lock(mutex_);
  Block* block = find_block(ptr);
  if (block == nullptr || !is_live(block)) return not_live("record_stream", ptr);
  return record_stream_locked(*block, stream);
}

Status CachingAllocator::Impl::record_stream_locked(Block& block, StreamUid stream) {
  if (stream == 0) return Status(StatusCode::invalid_argument, "record_stream: stream 0 is no stream");
  // M-02: what counts is where the stream is when the block is freed, so no position yet.
  if (stream != block.owner) pending_.add_use(block, stream, 0);
  return {};
}

Allocation CachingAllocator::Impl::find(DevicePtr ptr) noexcept {
  Lock lock(mutex_);
  Block* block = find_block(ptr);
  if (block == nullptr || !is_live(block)) return {};
  return {DevicePtr{block->address}, block, block->size};
}

Block* CachingAllocator::Impl::find_block(DevicePtr ptr) const noexcept {
  for (const BlockPool& pool : pools_) {
    if (Block* block = pool.ranges.find(ptr.address)) return block;
  }
  return nullptr;
}

Status CachingAllocator::Impl::not_live(const char* action, DevicePtr ptr) {
  char text[96];
  std::snprintf(text, sizeof text, "%s: 0x%llx is not the address of a live allocation", action,
                static_cast<unsigned long long>(ptr.address));
  return Status(StatusCode::invalid_argument, text);
}

void CachingAllocator::Impl::update_split_statistics() noexcept {
  std::int64_t blocks = 0, bytes = 0;
  for (const BlockPool& pool : pools_) {
    stats_.inactive_split.of(pool.type).set(pool.ranges.split_free_blocks());
    stats_.inactive_split_bytes.of(pool.type).set(pool.ranges.split_free_bytes());
    blocks += pool.ranges.split_free_blocks();
    bytes += pool.ranges.split_free_bytes();
  }
  stats_.inactive_split.of(StatType::aggregate).set(blocks);
  stats_.inactive_split_bytes.of(StatType::aggregate).set(bytes);
}

CachingAllocator::CachingAllocator(SegmentSource& segments, FenceSource& fences, CachingAllocatorOptions options)
    : impl_(std::make_unique<Impl>(this, segments, fences, std::move(options))) {}
CachingAllocator::~CachingAllocator() = default;

Status CachingAllocator::allocate(std::uint64_t bytes, StreamUid stream, Allocation& out) noexcept try {
  return impl_->allocate(bytes, stream, out);
} catch (const std::bad_alloc&) {
  return host_memory_exhausted();
}

Status CachingAllocator::free(Block* block) noexcept { return impl_->free(block); }
Status CachingAllocator::free(DevicePtr ptr) noexcept { return impl_->free(ptr); }

Status CachingAllocator::record_stream(Block* block, StreamUid stream) noexcept try {
  return impl_->record_stream(block, stream);
} catch (const std::bad_alloc&) {
  return host_memory_exhausted();
}

Status CachingAllocator::record_stream(DevicePtr ptr, StreamUid stream) noexcept try {
  return impl_->record_stream(ptr, stream);
} catch (const std::bad_alloc&) {
  return host_memory_exhausted();
}

CachingAllocator& CachingAllocator::owner_of(const Block* block) noexcept {
  return *const_cast<CachingAllocator*>(static_cast<const CachingAllocator*>(block->home));
}
DevicePtr CachingAllocator::address_of(const Block* block) noexcept { return DevicePtr{block->address}; }
Allocation CachingAllocator::allocation_of(Block& block) noexcept {
  return {DevicePtr{block.address}, &block, block.size};
}
Allocation CachingAllocator::find(DevicePtr ptr) const noexcept { return impl_->find(ptr); }

Status CachingAllocator::empty_cache() noexcept try { return impl_->empty_cache(); } catch (const std::bad_alloc&) {
  return host_memory_exhausted();
}

void CachingAllocator::set_limit(std::uint64_t bytes) noexcept { impl_->set_limit(bytes); }
std::uint64_t CachingAllocator::limit() const noexcept { return impl_->limit(); }
DeviceStatistics CachingAllocator::statistics() const { return impl_->statistics(); }
void CachingAllocator::reset_peak_statistics() noexcept { impl_->reset_peak_statistics(); }
void CachingAllocator::reset_accumulated_statistics() noexcept { impl_->reset_accumulated_statistics(); }
std::vector<SegmentSnapshot> CachingAllocator::snapshot() const { return impl_->snapshot(); }

}  // namespace mojo::memory
