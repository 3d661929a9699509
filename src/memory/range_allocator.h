// What it is: RangeAllocator, the blocks that segments are cut into: best fit, split, coalesce, and the block around an
//   address. Arithmetic on addresses and sizes; what a free block waits for is a label to it.
// Ordering: a free block is labelled (owner, sequence): usable by the owner now, by others from that position on; owner
//   0: by everyone. Blocks of different labels do not coalesce, or the owner would lose the memory it may use at once.
// Threads: guarded by its allocator's mutex.
// Errors: add_segment and prepare throw std::bad_alloc; all else is noexcept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "memory/node_set.h"
#include "memory/pending_uses.h"

namespace mojo::memory {

struct Segment;
struct Block;
class RangeAllocator;

struct FreeOrder {
  struct Key {
    StreamUid owner;
    std::uint64_t size, address;
  };
  bool operator()(const Block& a, const Block& b) const noexcept;
  bool operator()(const Block& a, const Key& b) const noexcept;
  bool operator()(const Key& a, const Block& b) const noexcept;
};
using FreeBlocks = NodeSet<Block, FreeOrder>;

// A range of a segment. The objects are recycled and live as long as the allocator, so that looking at a stale handle is
// a reported mistake and not a crash.
struct Block : UsedItem {
  enum class Use : std::uint8_t { none, free, taken, waiting };  // none: the object stands for no range

  std::uint64_t address = 0, size = 0;
  std::uint64_t requested = 0;  // of a taken one
  Segment* segment = nullptr;
  Block* previous = nullptr;  // neighbours in the segment
  Block* next = nullptr;
  Use use = Use::none;
  StreamUid owner = 0;
  std::uint64_t sequence = 0;
  const void* home = nullptr;  // the CachingAllocator it is a handle of
  FreeBlocks::Hook hook;

  bool is_split() const noexcept { return previous != nullptr || next != nullptr; }
};

inline bool FreeOrder::operator()(const Block& a, const Block& b) const noexcept {
  if (a.owner != b.owner) return a.owner < b.owner;
  if (a.size != b.size) return a.size < b.size;
  return a.address < b.address;
}
inline bool FreeOrder::operator()(const Block& a, const Key& b) const noexcept {
  if (a.owner != b.owner) return a.owner < b.owner;
  if (a.size != b.size) return a.size < b.size;
  return a.address < b.address;
}
inline bool FreeOrder::operator()(const Key& a, const Block& b) const noexcept {
  if (a.owner != b.owner) return a.owner < b.owner;
  if (a.size != b.size) return a.size < b.size;
  return a.address < b.address;
}

// One piece of memory got from the device.
struct Segment {
  std::uint64_t address = 0, size = 0;
  StreamUid stream = 0;  // whom it was got for, or who took it whole last
  Block* first = nullptr;
  RangeAllocator* allocator = nullptr;
  // The block that starts in each granule, null if none does, and one bit for each entry that is not null.
  std::vector<Block*> starts;
  std::vector<std::uint64_t> start_bits;
};

class RangeAllocator {
 public:
  // No two blocks start in one granule: every block is of at least that many bytes. `home` goes into every Block.
  explicit RangeAllocator(std::uint64_t granule, const void* home = nullptr) : granule_(granule), home_(home) {}
  RangeAllocator(const RangeAllocator&) = delete;
  RangeAllocator& operator=(const RangeAllocator&) = delete;

  // A new segment as one free block, labelled (owner, sequence).
  Block& add_segment(std::uint64_t address, std::uint64_t size, StreamUid owner, std::uint64_t sequence);
  // Forgets a segment that is one free block.
  void remove_segment(Segment& segment) noexcept;

  // Makes sure that the next take can split. Throws std::bad_alloc.
  void prepare() {
    if (spare_.empty()) add_spare();
  }

  // The smallest free block of `owner` or of everyone with at least `size` bytes, at the lowest address; or null.
  Block* best_fit(StreamUid owner, std::uint64_t size) const noexcept;
  // Takes the first `size` bytes of a free block for `owner`. What is left stays free under its label if it is of at least
  // `least_rest` bytes (and a granule), otherwise it comes along.
  Block& take(Block& block, std::uint64_t size, std::uint64_t least_rest, StreamUid owner) noexcept;
  // The same of adjacent free blocks from `first` to `last` that have `size` bytes together, all of them needed.
  Block& take_run(Block& first, Block& last, std::uint64_t size, std::uint64_t least_rest, StreamUid owner) noexcept;
  // Tells of a stream that takes. While there is one alone, all free memory is as good as its own.
  void note_owner(StreamUid owner) noexcept {
    if (owner == sole_owner_) return;
    several_owners_ = sole_owner_ != 0;
    if (!several_owners_) sole_owner_ = owner;
  }
  bool several_owners() const noexcept { return several_owners_; }

  // Makes a taken block free, labelled, and coalesces it with free neighbours of the same owner. With those that are
  // everyone's only while there is one owner: later they would become one stream's, to be used by the others only when
  // it has come so far. (A waiting block is taken here.)
  void release(Block& block, StreamUid owner, std::uint64_t sequence) noexcept;
  // Labels a free block as everyone's.
  void share(Block& block) noexcept;

  // The block around an address, whatever its use; null if no segment has it.
  Block* find(std::uint64_t address) const noexcept;

  const FreeBlocks& free_blocks() const noexcept { return free_; }
  const std::vector<std::unique_ptr<Segment>>& segments() const noexcept { return segments_; }  // by address
  // Free blocks that do not fill their segment.
  std::int64_t split_free_blocks() const noexcept { return split_free_blocks_; }
  std::int64_t split_free_bytes() const noexcept { return split_free_bytes_; }

 private:
  void add_spare();
  Block& new_block() noexcept;
  void drop_block(Block& block) noexcept;
  void put_start(Block& block) noexcept;
  void remove_start(const Block& block) noexcept;
  void count(const Block& block, int sign) noexcept;  // in split_free_*, if it belongs there
  void remove_from_free(Block& block) noexcept;
  void absorb_next(Block& block) noexcept;
  void absorb_previous(Block& block) noexcept;
  void mark_owner(Segment& segment, StreamUid owner) noexcept;
  bool can_leave(std::uint64_t rest, std::uint64_t least_rest) const noexcept {
    return rest >= least_rest && rest >= granule_;
  }

  const std::uint64_t granule_;
  const void* const home_;
  std::vector<std::unique_ptr<Segment>> segments_;
  FreeBlocks free_;
  std::deque<Block> objects_;
  std::vector<Block*> spare_;
  std::int64_t split_free_blocks_ = 0, split_free_bytes_ = 0;
  StreamUid sole_owner_ = 0;
  bool several_owners_ = false;
};

}  // namespace mojo::memory
