// What CachingAllocator tells about itself: statistics, snapshot, the text of an out-of-memory error, and the limit.
#include <algorithm>
#include <string>

#include "memory/caching_allocator_impl.h"
#include "memory/format_size.h"

namespace mojo::memory {

Status CachingAllocator::Impl::out_of_memory(Lock& lock, const Request& request) {
  ++stats_.num_ooms;
  const auto allocated = static_cast<std::uint64_t>(stats_.allocated_bytes.of(StatType::aggregate).current);
  const auto reserved = static_cast<std::uint64_t>(stats_.reserved_bytes.of(StatType::aggregate).current);
  const std::uint64_t limit = limit_;
  lock.unlock();
  std::uint64_t free = 0, total = 0;
  segments_.memory_info(free, total);
  lock.lock();

  std::string text = options_.device_name + " out of memory. Tried to allocate " + format_size(request.bytes) + ". ";
  if (total != 0) {
    text += options_.device_name + " has a total capacity of " + format_size(total) + " of which " + format_size(free) +
            " is free. ";
  }
  if (limit != 0) text += "The process is allowed " + format_size(limit) + ". ";
  text += "Of the reserved memory " + format_size(reserved) + ", " + format_size(allocated) + " is allocated and " +
          format_size(reserved - allocated) + " is reserved but unallocated.";
  return Status(StatusCode::out_of_memory, std::move(text));
}

void CachingAllocator::Impl::set_limit(std::uint64_t bytes) noexcept {
  Lock lock(mutex_);
  limit_ = bytes;
}

std::uint64_t CachingAllocator::Impl::limit() noexcept {
  Lock lock(mutex_);
  return limit_;
}

DeviceStatistics CachingAllocator::Impl::statistics() {
  Lock lock(mutex_);
  pending_.sweep(finisher());
  return stats_;
}

void CachingAllocator::Impl::reset_peak_statistics() noexcept {
  Lock lock(mutex_);
  stats_.for_each_array([](StatArray& array) {
    for (Stat& stat : array) stat.reset_peak();
  });
  stats_.oversize_allocations.reset_peak();
  stats_.oversize_segments.reset_peak();
}

void CachingAllocator::Impl::reset_accumulated_statistics() noexcept {
  Lock lock(mutex_);
  stats_.for_each_array([](StatArray& array) {
    for (Stat& stat : array) stat.reset_accumulated();
  });
  stats_.oversize_allocations.reset_accumulated();
  stats_.oversize_segments.reset_accumulated();
  stats_.num_alloc_retries = stats_.num_ooms = 0;  // as CUDA's: the other counters go on
}

std::vector<SegmentSnapshot> CachingAllocator::Impl::snapshot() {
  std::vector<SegmentSnapshot> result;
  Lock lock(mutex_);
  pending_.sweep(finisher());
  for (const BlockPool& pool : pools_) {
    for (const auto& segment : pool.ranges.segments()) {
      SegmentSnapshot s;
      s.address = DevicePtr{segment->address};
      s.total_size = segment->size;
      s.stream = segment->stream;
      s.is_large = pool.type == StatType::large_pool;
      for (const Block* block = segment->first; block != nullptr; block = block->next) {
        const BlockState state = block->use == Block::Use::taken     ? BlockState::allocated
                                 : block->use == Block::Use::waiting ? BlockState::active_pending_free
                                                                     : BlockState::inactive;
        s.blocks.push_back({DevicePtr{block->address}, block->size, block->requested, state, block->owner});
        s.requested_size += block->requested;
        if (state == BlockState::allocated) s.allocated_size += block->size;
        if (state != BlockState::inactive) s.active_size += block->size;
      }
      result.push_back(std::move(s));
    }
  }
  std::sort(result.begin(), result.end(),
            [](const SegmentSnapshot& a, const SegmentSnapshot& b) { return a.address < b.address; });
  return result;
}

}  // namespace mojo::memory
