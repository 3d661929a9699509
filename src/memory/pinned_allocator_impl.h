// What it is: the inside of PinnedAllocator: its blocks and its private functions.
// Ordering: see pinned_allocator.h.
// Threads: a function that takes a Lock is entered and left with it held and gives it up around calls of the driver; a
//   private one that takes none runs with the mutex held throughout.
// Errors: those that are not noexcept throw std::bad_alloc, which pinned_allocator.cpp turns into a Status.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "memory/node_set.h"
#include "memory/pending_uses.h"
#include "memory/pinned_allocator.h"

namespace mojo::memory {

struct PinnedFreeOrder {
  struct Key {
    std::uint64_t size;
    std::uintptr_t address;
  };
  bool operator()(const PinnedBlock& a, const PinnedBlock& b) const noexcept;
  bool operator()(const PinnedBlock& a, const Key& b) const noexcept;
  bool operator()(const Key& a, const PinnedBlock& b) const noexcept;
};

// One piece of memory of the driver. Handles outlive the memory: the objects are recycled, never destroyed.
struct PinnedBlock : UsedItem {
  enum class State : std::uint8_t { none, unused, live, waiting };

  std::uintptr_t address = 0;
  std::uint64_t size = 0;
  State state = State::none;
  const PinnedAllocator* home = nullptr;
  PinnedBlock* older = nullptr;  // unused blocks by when they were freed
  PinnedBlock* newer = nullptr;
  NodeSet<PinnedBlock, PinnedFreeOrder>::Hook hook;

  void* ptr() const noexcept { return reinterpret_cast<void*>(address); }
};

inline bool PinnedFreeOrder::operator()(const PinnedBlock& a, const PinnedBlock& b) const noexcept {
  return a.size != b.size ? a.size < b.size : a.address < b.address;
}
inline bool PinnedFreeOrder::operator()(const PinnedBlock& a, const Key& b) const noexcept {
  return a.size != b.size ? a.size < b.size : a.address < b.address;
}
inline bool PinnedFreeOrder::operator()(const Key& a, const PinnedBlock& b) const noexcept {
  return a.size != b.size ? a.size < b.size : a.address < b.address;
}

class PinnedAllocator::Impl {
 public:
  Impl(const PinnedAllocator* home, PinnedSource& source, FenceSource& fences, PinnedAllocatorOptions options)
      : home_(home), source_(source), fences_(fences), options_(options), pending_(fences) {}
  ~Impl() {
    for (auto& [address, block] : by_address_) (void)source_.free(block->ptr(), block->size);
  }

  Status allocate(std::uint64_t bytes, PinnedAllocation& out);
  Status free(PinnedBlock* block) noexcept;
  Status free(const void* ptr) noexcept;
  Status record(const void* ptr, StreamUid stream, std::uint64_t sequence, const char* action);
  Status record(PinnedBlock* block, StreamUid stream, std::uint64_t sequence, const char* action);
  PinnedAllocation find(const void* ptr) noexcept;
  Status empty_cache();
  PinnedStatistics statistics();
  void reset(void (Stat::*how)() noexcept, bool accumulated) noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;

  PinnedBlock* find_live(const void* ptr) const noexcept;
  bool is_live(const PinnedBlock* block) const noexcept {
    return block->home == home_ && block->state == PinnedBlock::State::live;
  }
  Status free_locked(Lock& lock, PinnedBlock& block) noexcept;
  void make_unused(PinnedBlock& block) noexcept;
  void remove_unused(PinnedBlock& block) noexcept;
  auto finisher() noexcept {
    return [this](UsedItem& item) { make_unused(static_cast<PinnedBlock&>(item)); };
  }

  PinnedBlock* take_unused(std::uint64_t size) noexcept;
  Status allocate_slowly(Lock& lock, std::uint64_t bytes, std::uint64_t size, PinnedBlock*& out);
  Status grow(Lock& lock, std::uint64_t size, PinnedBlock*& out);
  // Returns the longest unused blocks to the driver until at most `keep` unused bytes are left.
  Status release_unused(Lock& lock, std::uint64_t keep);

  const PinnedAllocator* const home_;
  PinnedSource& source_;
  FenceSource& fences_;
  const PinnedAllocatorOptions options_;

  std::mutex mutex_;
  std::map<std::uintptr_t, PinnedBlock*> by_address_;
  NodeSet<PinnedBlock, PinnedFreeOrder> unused_;
  PinnedBlock* oldest_ = nullptr;
  PinnedBlock* newest_ = nullptr;
  std::uint64_t unused_bytes_ = 0;
  std::vector<std::unique_ptr<PinnedBlock>> objects_;
  std::vector<PinnedBlock*> spare_;
  PendingUses pending_;
  PinnedStatistics stats_;
};

}  // namespace mojo::memory
