#include "memory/pinned_allocator.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "memory/format_size.h"
#include "memory/pinned_allocator_impl.h"

namespace mojo::memory {

namespace {

constexpr std::uint64_t rounding = 64;  // a cache line: neighbours in one page never share one
constexpr std::uint64_t largest_request = std::uint64_t{1} << 62;
constexpr std::size_t streams_swept_per_allocation = 4;

constexpr std::uint64_t rounded(std::uint64_t bytes) noexcept { return (bytes + rounding - 1) / rounding * rounding; }
// The largest cached block that a request may have: a little waste is better than another call of the driver.
constexpr std::uint64_t largest_fit(std::uint64_t size) noexcept { return size + size / 8; }

std::int64_t microseconds_since(std::chrono::steady_clock::time_point start) noexcept {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count();
}

std::uintptr_t address_of(const void* ptr) noexcept { return reinterpret_cast<std::uintptr_t>(ptr); }

Status host_memory_exhausted() {
  return Status(StatusCode::out_of_memory, "the host has no memory for the pinned allocator's own records");
}

Status not_live(const char* action, const void* ptr) {
  char text[96];
  std::snprintf(text, sizeof text, "%s: %p is not the address of a live pinned allocation", action, ptr);
  return Status(StatusCode::invalid_argument, text);
}

}  // namespace

Status PinnedAllocator::Impl::allocate(std::uint64_t bytes, PinnedAllocation& out) {
  out = {};
  if (bytes == 0) return {};
  if (bytes > largest_request) {
    return Status(StatusCode::out_of_memory, "out of pinned memory. Tried to allocate " + format_size(bytes) + ".");
  }
  const std::uint64_t size = rounded(bytes);
  Lock lock(mutex_);
  if (!pending_.empty()) pending_.sweep_some(streams_swept_per_allocation, finisher());
  PinnedBlock* block = take_unused(size);
  if (block == nullptr) MOJO_RETURN_IF_ERROR(allocate_slowly(lock, bytes, size, block));
  block->state = PinnedBlock::State::live;
  const auto counted = static_cast<std::int64_t>(block->size);
  stats_.live.increase(1);
  stats_.live_bytes.increase(counted);
  stats_.active_requests.increase(1);
  stats_.active_bytes.increase(counted);
  out = {block->ptr(), block, block->size};
  return {};
}

PinnedBlock* PinnedAllocator::Impl::take_unused(std::uint64_t size) noexcept {
  const auto it = unused_.lower_bound({size, 0});
  if (it == unused_.end() || (*it)->size > largest_fit(size)) return nullptr;
  PinnedBlock* block = *it;
  remove_unused(*block);
  return block;
}

Status PinnedAllocator::Impl::allocate_slowly(Lock& lock, std::uint64_t bytes, std::uint64_t size, PinnedBlock*& out) {
  pending_.sweep(finisher());
  if ((out = take_unused(size)) != nullptr) return {};
  if (pending_.poll_fences(lock)) pending_.sweep(finisher());
  if ((out = take_unused(size)) != nullptr) return {};

  // The driver has to be called anyway: a good time to give back what nobody has wanted for long.
  (void)release_unused(lock, std::max(options_.keep_bytes, static_cast<std::uint64_t>(stats_.active_bytes.current)));
  Status status = grow(lock, size, out);
  if (status.code() != StatusCode::out_of_memory) return status;
  (void)release_unused(lock, 0);
  status = grow(lock, size, out);
  if (status.code() != StatusCode::out_of_memory) return status;
  if (pending_.wait(lock, {})) {
    pending_.sweep(finisher());
    if ((out = take_unused(size)) != nullptr) return {};
    (void)release_unused(lock, 0);
    status = grow(lock, size, out);
    if (status.code() != StatusCode::out_of_memory) return status;
  }
  return Status(StatusCode::out_of_memory,
                "out of pinned memory. Tried to allocate " + format_size(bytes) + ". Of the reserved memory " +
                    format_size(static_cast<std::uint64_t>(stats_.allocated_bytes.current)) + ", " +
                    format_size(static_cast<std::uint64_t>(stats_.active_bytes.current)) + " is in use. " +
                    status.message());
}

Status PinnedAllocator::Impl::grow(Lock& lock, std::uint64_t size, PinnedBlock*& out) {
  lock.unlock();
  void* ptr = nullptr;
  const auto start = std::chrono::steady_clock::now();
  Status status = source_.allocate(size, ptr);
  const std::int64_t microseconds = microseconds_since(start);
  lock.lock();
  if (!status.ok()) return status;
  try {
    if (spare_.empty()) {
      spare_.reserve(objects_.size() + 1);
      objects_.push_back(std::make_unique<PinnedBlock>());
      unused_.adopt(*objects_.back());
      spare_.push_back(objects_.back().get());
    }
    by_address_.emplace(address_of(ptr), spare_.back());
  } catch (...) {
    lock.unlock();
    (void)source_.free(ptr, size);
    lock.lock();
    throw;
  }
  out = spare_.back();
  spare_.pop_back();
  out->address = address_of(ptr);
  out->size = size;
  out->home = home_;
  stats_.host_alloc_time.add(microseconds);
  stats_.allocations.increase(1);
  stats_.allocated_bytes.increase(static_cast<std::int64_t>(size));
  ++stats_.num_host_alloc;
  ++stats_.bucket_allocation[static_cast<std::size_t>(std::bit_width(size - 1))];
  return {};
}

Status PinnedAllocator::Impl::free(PinnedBlock* block) noexcept {
  if (block == nullptr) return {};
  Lock lock(mutex_);
  if (!is_live(block))
    return Status(StatusCode::invalid_argument, "free: the handle is not of a live pinned allocation");
  return free_locked(lock, *block);
}

Status PinnedAllocator::Impl::free(const void* ptr) noexcept {
  if (ptr == nullptr) return {};
  Lock lock(mutex_);
  PinnedBlock* block = find_live(ptr);
  if (block == nullptr || block->ptr() != ptr) return not_live("free", ptr);
  return free_locked(lock, *block);
}

// C-11: a block that queued copies use goes to the pending ones.
Status PinnedAllocator::Impl::free_locked(Lock& lock, PinnedBlock& block) noexcept {
  stats_.live.decrease(1);
  stats_.live_bytes.decrease(static_cast<std::int64_t>(block.size));
  if (block.uses.empty() || !pending_.start_waiting(block, 0)) {
    make_unused(block);
    return {};
  }
  block.state = PinnedBlock::State::waiting;
  if (pending_.needs_fences()) pending_.record_fences(lock, block);
  return {};
}

void PinnedAllocator::Impl::make_unused(PinnedBlock& block) noexcept {
  stats_.active_requests.decrease(1);
  stats_.active_bytes.decrease(static_cast<std::int64_t>(block.size));
  block.state = PinnedBlock::State::unused;
  unused_.insert(block);
  unused_bytes_ += block.size;
  block.older = newest_;
  block.newer = nullptr;
  (newest_ == nullptr ? oldest_ : newest_->newer) = &block;
  newest_ = &block;
}

void PinnedAllocator::Impl::remove_unused(PinnedBlock& block) noexcept {
  unused_.erase(block);
  unused_bytes_ -= block.size;
  (block.older == nullptr ? oldest_ : block.older->newer) = block.newer;
  (block.newer == nullptr ? newest_ : block.newer->older) = block.older;
  block.older = block.newer = nullptr;
}

Status PinnedAllocator::Impl::record(const void* ptr, StreamUid stream, std::uint64_t sequence, const char* action) {
  Lock lock(mutex_);
  PinnedBlock* block = find_live(ptr);
  if (block == nullptr) return not_live(action, ptr);
  if (stream == 0) return Status(StatusCode::invalid_argument, std::string(action) + ": stream 0 is no stream");
  pending_.add_use(*block, stream, sequence);
  return {};
}

Status PinnedAllocator::Impl::record(PinnedBlock* block, StreamUid stream, std::uint64_t sequence, const char* action) {
  if (block == nullptr) return {};
  Lock lock(mutex_);
  if (!is_live(block)) {
    return Status(StatusCode::invalid_argument,
                  std::string(action) + ": the handle is not of a live pinned allocation");
  }
  if (stream == 0) return Status(StatusCode::invalid_argument, std::string(action) + ": stream 0 is no stream");
  pending_.add_use(*block, stream, sequence);
  return {};
}

PinnedBlock* PinnedAllocator::Impl::find_live(const void* ptr) const noexcept {
  const auto after = by_address_.upper_bound(address_of(ptr));
  if (after == by_address_.begin()) return nullptr;
  PinnedBlock* block = std::prev(after)->second;
  return address_of(ptr) - block->address < block->size && is_live(block) ? block : nullptr;
}

PinnedAllocation PinnedAllocator::Impl::find(const void* ptr) noexcept {
  Lock lock(mutex_);
  PinnedBlock* block = find_live(ptr);
  if (block == nullptr) return {};
  return {block->ptr(), block, block->size};
}

Status PinnedAllocator::Impl::release_unused(Lock& lock, std::uint64_t keep) {
  std::vector<std::pair<void*, std::uint64_t>> returned;
  while (unused_bytes_ > keep) {
    PinnedBlock& block = *oldest_;
    returned.emplace_back(block.ptr(), block.size);  // before the block changes: this may throw
    remove_unused(block);
    by_address_.erase(block.address);
    block.state = PinnedBlock::State::none;
    spare_.push_back(&block);  // grow has made room for every object
    stats_.allocations.decrease(1);
    stats_.allocated_bytes.decrease(static_cast<std::int64_t>(block.size));
  }
  if (returned.empty()) return {};
  lock.unlock();
  Status first;
  DurationStat spent;
  for (const auto& [ptr, bytes] : returned) {
    const auto start = std::chrono::steady_clock::now();
    if (Status status = source_.free(ptr, bytes); !status.ok() && first.ok()) first = std::move(status);
    spent.add(microseconds_since(start));
  }
  lock.lock();
  stats_.num_host_free += spent.count;
  stats_.host_free_time.merge(spent);
  return first;
}

Status PinnedAllocator::Impl::empty_cache() {
  Lock lock(mutex_);
  pending_.poll_fences(lock);
  std::vector<StreamUid> busy;
  pending_.sweep(finisher());
  pending_.waited_streams(busy);
  if (!busy.empty()) {
    lock.unlock();
    for (StreamUid stream : busy) (void)fences_.poll_completed(stream);
    lock.lock();
    pending_.sweep(finisher());
  }
  return release_unused(lock, 0);
}

PinnedStatistics PinnedAllocator::Impl::statistics() {
  Lock lock(mutex_);
  pending_.sweep(finisher());
  return stats_;
}

void PinnedAllocator::Impl::reset(void (Stat::*how)() noexcept, bool accumulated) noexcept {
  Lock lock(mutex_);
  for (Stat* stat : {&stats_.live, &stats_.live_bytes, &stats_.active_requests, &stats_.active_bytes,
                     &stats_.allocations, &stats_.allocated_bytes}) {
    (stat->*how)();
  }
  if (!accumulated) return;
  stats_.host_alloc_time.reset();
  stats_.host_free_time.reset();
  stats_.num_host_alloc = stats_.num_host_free = 0;
  stats_.bucket_allocation.fill(0);
}

PinnedAllocator::PinnedAllocator(PinnedSource& source, FenceSource& fences, PinnedAllocatorOptions options)
    : impl_(std::make_unique<Impl>(this, source, fences, options)) {}
PinnedAllocator::~PinnedAllocator() = default;

Status PinnedAllocator::allocate(std::uint64_t bytes, PinnedAllocation& out) noexcept try {
  return impl_->allocate(bytes, out);
} catch (const std::bad_alloc&) {
  return host_memory_exhausted();
}

Status PinnedAllocator::free(PinnedBlock* block) noexcept { return impl_->free(block); }
Status PinnedAllocator::free(const void* ptr) noexcept { return impl_->free(ptr); }

Status PinnedAllocator::record_use(const void* ptr, Position use) noexcept try {
  return use.sequence == 0 ? Status() : impl_->record(ptr, use.stream, use.sequence, "record_use");
} catch (const std::bad_alloc&) {
  return host_memory_exhausted();
}

Status PinnedAllocator::record_use(PinnedBlock* block, Position use) noexcept try {
  return use.sequence == 0 ? Status() : impl_->record(block, use.stream, use.sequence, "record_use");
} catch (const std::bad_alloc&) {
  return host_memory_exhausted();
}

Status PinnedAllocator::record_stream(const void* ptr, StreamUid stream) noexcept try {
  return impl_->record(ptr, stream, 0, "record_stream");
} catch (const std::bad_alloc&) {
  return host_memory_exhausted();
}

Status PinnedAllocator::record_stream(PinnedBlock* block, StreamUid stream) noexcept try {
  return impl_->record(block, stream, 0, "record_stream");
} catch (const std::bad_alloc&) {
  return host_memory_exhausted();
}

PinnedAllocator& PinnedAllocator::owner_of(const PinnedBlock* block) noexcept {
  return *const_cast<PinnedAllocator*>(block->home);
}
PinnedAllocation PinnedAllocator::allocation_of(PinnedBlock& block) noexcept {
  return {block.ptr(), &block, block.size};
}
PinnedAllocation PinnedAllocator::find(const void* ptr) const noexcept { return impl_->find(ptr); }

Status PinnedAllocator::empty_cache() noexcept try { return impl_->empty_cache(); } catch (const std::bad_alloc&) {
  return host_memory_exhausted();
}

PinnedStatistics PinnedAllocator::statistics() const { return impl_->statistics(); }
void PinnedAllocator::reset_peak_statistics() noexcept { impl_->reset(&Stat::reset_peak, false); }
void PinnedAllocator::reset_accumulated_statistics() noexcept { impl_->reset(&Stat::reset_accumulated, true); }

}  // namespace mojo::memory
