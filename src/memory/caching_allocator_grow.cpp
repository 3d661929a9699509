// What CachingAllocator does when no block of its own stream fits: the ladder of DESIGN "Memory", down to out of memory.
#include <algorithm>

#include "memory/caching_allocator_impl.h"

namespace mojo::memory {

Status CachingAllocator::Impl::allocate_slowly(Lock& lock, const Request& request, Block*& out) {
  for (int attempt = 1;; ++attempt) {
    if ((out = reuse(request)) != nullptr) return {};
    if (pending_.poll_fences(lock) && (out = reuse(request)) != nullptr) return {};
    if (past_threshold(request)) (void)release_cached(lock);
    Status status = grow(lock, request, out);
    if (status.code() != StatusCode::out_of_memory) return status;

    // M-07: give back what is cached, once; then wait for what streams still use, if that can be enough.
    if (attempt == 1) ++stats_.num_alloc_retries;
    (void)release_cached(lock);  // a segment that the device does not take back is lost, not the allocation
    if ((out = reuse(request)) != nullptr) return {};
    std::uint64_t seen = progress_;
    status = grow(lock, request, out);
    if (status.code() != StatusCode::out_of_memory) return status;
    if (waiting_could_help(lock, request) && wait_for_streams(lock)) {
      if ((out = reuse(request)) != nullptr) return {};
      (void)release_cached(lock);
      if ((out = reuse(request)) != nullptr) return {};
      seen = progress_;
      status = grow(lock, request, out);
      if (status.code() != StatusCode::out_of_memory) return status;
    }
    // What is left may be less than a whole segment, and enough.
    if (request.size < segment_size(request.size)) {
      status = grow(lock, request, request.size, out);
      if (status.code() != StatusCode::out_of_memory) return status;
    }
    if (attempt == allocation_attempts || !wait_for_others(lock, seen)) return out_of_memory(lock, request);
  }
}

// Memory that is there already, without asking the driver anything.
Block* CachingAllocator::Impl::reuse(const Request& request) {
  request.pool.ranges.prepare();
  pending_.sweep(finisher());
  if (Block* block = request.pool.take_own(request.stream, request.size)) return block;
  if (!pending_.empty()) {
    take_over_pending(request);
    if (Block* block = request.pool.take_own(request.stream, request.size)) return block;
  }
  Block* block = request.pool.take_ordered(fences_, request.stream, request.size);
  update_split_statistics();
  return block;
}

// Freed blocks whose users are incomplete, but ordered before the next operation of the requesting stream.
void CachingAllocator::Impl::take_over_pending(const Request& request) noexcept {
  Block* best = nullptr;
  pending_.take_ordered(
      request.stream,
      [&](UsedItem& item) {
        auto& block = static_cast<Block&>(item);
        if (block.owner == request.stream) return true;
        // Of another owner's take no more than what is needed.
        if (&pool_of(block) == &request.pool && block.size >= request.size &&
            request.pool.serves(block, request.size) && (best == nullptr || block.size < best->size) &&
            block.sequence <=
                std::max(fences_.completed(block.owner), fences_.ordered_before(block.owner, request.stream))) {
          best = &block;
        }
        return false;
      },
      // Not where it was freed but where the stream is now: it has waited for the users since.
      [&](UsedItem& item) {
        finish_free(static_cast<Block&>(item), request.stream, fences_.position(request.stream));
      });
  if (best == nullptr || request.pool.find_own(request.stream, request.size) != nullptr) return;
  pending_.stop_waiting(*best);
  finish_free(*best, request.stream, fences_.position(request.stream));
}

std::uint64_t CachingAllocator::Impl::reserved_with(std::uint64_t bytes) const noexcept {
  return static_cast<std::uint64_t>(stats_.reserved_bytes.of(StatType::aggregate).current) + growing_bytes_ + bytes;
}

bool CachingAllocator::Impl::past_threshold(const Request& request) const noexcept {
  const double threshold = options_.policy.garbage_collection_threshold * static_cast<double>(limit_);
  return threshold > 0 && static_cast<double>(reserved_with(segment_size(request.size))) > threshold;
}

Status CachingAllocator::Impl::grow(Lock& lock, const Request& request, std::uint64_t bytes, Block*& out) {
  if (limit_ != 0 && reserved_with(bytes) > limit_) return Status(StatusCode::out_of_memory, "limit");

  growing_bytes_ += bytes;
  ++in_flight_;
  lock.unlock();
  DevicePtr ptr;
  Status status = segments_.allocate(bytes, ptr);
  lock.lock();
  growing_bytes_ -= bytes;
  end_flight();
  if (!status.ok()) return status;

  Block* block = nullptr;
  try {
    // Nobody has used it yet.
    block = &request.pool.ranges.add_segment(ptr.address, bytes,
                                             request.pool.ranges.several_owners() ? 0 : request.stream, 0);
  } catch (...) {
    lock.unlock();
    (void)segments_.free(ptr, bytes);
    lock.lock();
    throw;
  }
  block->segment->stream = request.stream;
  stats_.segment.increase(request.pool.type, 1);
  stats_.reserved_bytes.increase(request.pool.type, static_cast<std::int64_t>(bytes));
  if (is_oversize(request.size)) stats_.oversize_segments.increase(1);
  ++stats_.num_device_alloc;
  request.pool.ranges.prepare();  // if this throws, the segment is there for the next request
  out = &request.pool.take(*block, request.stream, request.size);
  return {};
}

Status CachingAllocator::Impl::grow(Lock& lock, const Request& request, Block*& out) {
  return grow(lock, request, segment_size(request.size), out);
}

void CachingAllocator::Impl::settle() noexcept {
  pending_.sweep(finisher());
  for (BlockPool& pool : pools_) pool.share_complete(fences_);
  update_split_statistics();
}

Status CachingAllocator::Impl::empty_cache() {
  Lock lock(mutex_);
  pending_.poll_fences(lock);
  return release_cached(lock);
}

// M-06: returns the segments that are free and complete, and no others.
Status CachingAllocator::Impl::release_cached(Lock& lock) {
  settle();
  std::vector<StreamUid> busy;
  pending_.waited_streams(busy);
  for (const BlockPool& pool : pools_) {
    pool.for_each_owner([&](StreamUid owner, std::uint64_t) { busy.push_back(owner); });
  }
  if (!busy.empty()) {
    lock.unlock();
    for (StreamUid stream : busy) (void)fences_.poll_completed(stream);
    lock.lock();
    settle();
  }

  struct Returned {
    DevicePtr ptr;
    std::uint64_t bytes;
    StatType type;
  };
  std::vector<Returned> returned;
  for (const BlockPool& pool : pools_) returned.reserve(returned.capacity() + pool.ranges.segments().size());
  for (BlockPool& pool : pools_) {
    const FreeBlocks& free = pool.ranges.free_blocks();
    for (auto it = free.begin(); it != free.end() && (*it)->owner == 0;) {
      Block& block = **it;
      ++it;
      if (block.is_split()) continue;
      returned.push_back({DevicePtr{block.address}, block.size, pool.type});
      if (is_oversize(block.size)) stats_.oversize_segments.decrease(1);
      pool.ranges.remove_segment(*block.segment);
    }
  }
  if (returned.empty()) return {};

  ++in_flight_;
  lock.unlock();
  Status first;
  for (const Returned& r : returned) {
    if (Status status = segments_.free(r.ptr, r.bytes); !status.ok() && first.ok()) first = std::move(status);
  }
  lock.lock();
  for (const Returned& r : returned) {
    stats_.segment.decrease(r.type, 1);
    stats_.reserved_bytes.decrease(r.type, static_cast<std::int64_t>(r.bytes));
    ++stats_.num_device_free;
  }
  ++progress_;
  end_flight();
  return first;
}

// Waiting for streams can block the host for long, or for ever if this thread holds them up: only if the request
// would fit next to what is live.
bool CachingAllocator::Impl::waiting_could_help(Lock& lock, const Request& request) noexcept {
  lock.unlock();
  std::uint64_t free = 0, total = 0;
  segments_.memory_info(free, total);
  lock.lock();
  const auto live = static_cast<std::uint64_t>(stats_.allocated_bytes.of(StatType::aggregate).current);
  const auto fits = [&](std::uint64_t capacity) { return capacity == 0 || live + request.size <= capacity; };
  return fits(limit_) && fits(total);
}

// Waits for every position that keeps a segment from being returned or a block from being used. False: there is none.
bool CachingAllocator::Impl::wait_for_streams(Lock& lock) {
  std::vector<Position> owners;
  for (const BlockPool& pool : pools_) {
    for (const auto& segment : pool.ranges.segments()) {
      for (const Block* block = segment->first; block != nullptr; block = block->next) {
        const bool kept = block->use == Block::Use::free || block->use == Block::Use::waiting;
        if (kept && block->owner != 0) owners.push_back({block->owner, block->sequence});
      }
    }
  }
  if (!pending_.wait(lock, owners)) return false;
  ++stats_.num_sync_all_streams;
  settle();
  return true;
}

// Whether memory has come back since `seen`, or did while others were at the device: then it is worth another try.
bool CachingAllocator::Impl::wait_for_others(Lock& lock, std::uint64_t seen) noexcept {
  if (progress_ != seen) return true;
  if (in_flight_ == 0) return false;
  ++waiters_;
  changed_.wait(lock, [&] { return progress_ != seen || in_flight_ == 0; });
  --waiters_;
  return true;
}

void CachingAllocator::Impl::end_flight() noexcept {
  --in_flight_;
  if (waiters_ > 0) changed_.notify_all();
}

}  // namespace mojo::memory
