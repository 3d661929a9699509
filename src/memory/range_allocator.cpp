#include "memory/range_allocator.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace mojo::memory {

Block& RangeAllocator::add_segment(std::uint64_t address, std::uint64_t size, StreamUid owner, std::uint64_t sequence) {
  prepare();
  auto made = std::make_unique<Segment>();
  made->address = address;
  made->size = size;
  made->stream = owner;
  made->allocator = this;
  const std::size_t granules = (size + granule_ - 1) / granule_;
  made->starts.resize(granules);
  made->start_bits.resize((granules + 63) / 64);
  const auto at = std::upper_bound(segments_.begin(), segments_.end(), address,
                                   [](std::uint64_t a, const std::unique_ptr<Segment>& s) { return a < s->address; });
  Segment& segment = **segments_.insert(at, std::move(made));

  Block& block = new_block();
  block.address = address;
  block.size = size;
  block.segment = &segment;
  segment.first = &block;
  block.use = Block::Use::free;
  block.owner = owner;
  block.sequence = sequence;
  put_start(block);
  free_.insert(block);
  count(block, +1);
  return block;
}

void RangeAllocator::remove_segment(Segment& segment) noexcept {
  Block& block = *segment.first;
  assert(block.use == Block::Use::free && !block.is_split());
  remove_from_free(block);
  drop_block(block);
  const auto at = std::lower_bound(segments_.begin(), segments_.end(), segment.address,
                                   [](const std::unique_ptr<Segment>& s, std::uint64_t a) { return s->address < a; });
  segments_.erase(at);
}

Block* RangeAllocator::best_fit(StreamUid owner, std::uint64_t size) const noexcept {
  Block* best = nullptr;
  if (auto it = free_.lower_bound(FreeOrder::Key{owner, size, 0}); it != free_.end() && (*it)->owner == owner)
    best = *it;
  if (free_.empty() || (*free_.begin())->owner != 0) return best;  // nothing is everyone's
  if (auto it = free_.lower_bound(FreeOrder::Key{0, size, 0}); it != free_.end() && (*it)->owner == 0) {
    Block* shared = *it;
    if (best == nullptr || shared->size < best->size ||
        (shared->size == best->size && shared->address < best->address)) {
      best = shared;
    }
  }
  return best;
}

Block& RangeAllocator::take(Block& block, std::uint64_t size, std::uint64_t least_rest, StreamUid owner) noexcept {
  assert(block.use == Block::Use::free && block.size >= size);
  Segment& segment = *block.segment;
  Block* taken = &block;
  if (can_leave(block.size - size, least_rest)) {
    // The rest keeps the object and its node: the order of the free blocks hardly ever changes by it.
    count(block, -1);
    taken = &new_block();
    taken->address = block.address;
    taken->size = size;
    taken->segment = &segment;
    taken->previous = block.previous;
    taken->next = &block;
    (block.previous == nullptr ? segment.first : block.previous->next) = taken;
    block.previous = taken;
    remove_start(block);
    block.address += size;
    block.size -= size;
    put_start(*taken);
    put_start(block);
    free_.reposition(block);
    count(block, +1);
  } else {
    remove_from_free(block);
  }
  taken->use = Block::Use::taken;
  taken->owner = owner;
  mark_owner(segment, owner);
  return *taken;
}

Block& RangeAllocator::take_run(Block& first, Block& last, std::uint64_t size, std::uint64_t least_rest,
                                StreamUid owner) noexcept {
  assert(&first != &last);
  std::uint64_t before_last = 0;
  for (const Block* b = &first; b != &last; b = b->next) before_last += b->size;
  assert(before_last < size && before_last + last.size >= size);
  const std::uint64_t needed = size - before_last;
  const bool leave = can_leave(last.size - needed, least_rest);
  if (leave) {
    count(last, -1);
    remove_start(last);
    last.address += needed;
    last.size -= needed;
    put_start(last);
    free_.reposition(last);
    count(last, +1);
  }
  remove_from_free(first);
  Block* const end = leave ? &last : last.next;
  while (first.next != end) {
    remove_from_free(*first.next);
    absorb_next(first);
  }
  if (leave) first.size = size;  // the part cut off `last`
  first.use = Block::Use::taken;
  first.owner = owner;
  mark_owner(*first.segment, owner);
  return first;
}

void RangeAllocator::release(Block& block, StreamUid owner, std::uint64_t sequence) noexcept {
  assert(block.use == Block::Use::taken || block.use == Block::Use::waiting);
  mark_owner(*block.segment, owner);
  const auto joins = [&](const Block* b) {
    return b != nullptr && b->use == Block::Use::free && (b->owner == owner || (b->owner == 0 && !several_owners_));
  };
  // Not only the next ones: what was everyone's may have lain beside what is the owner's.
  Block* first = &block;
  Block* last = &block;
  while (joins(first->previous)) first = first->previous;
  while (joins(last->next)) last = last->next;
  const bool alone = first == last;
  // One that is among the free blocks already is what remains, so that in most cases no node moves.
  Block* result = first != &block ? first : (alone ? &block : block.next);
  for (Block* b = first;; b = b->next) {
    if (b != &block) {
      sequence = std::max(sequence, b->sequence);
      count(*b, -1);
      if (b != result) free_.erase(*b);
    }
    if (b == last) break;
  }
  const std::uint64_t end = last->address + last->size;
  if (first == &block && !alone) absorb_previous(*result);
  while (result->address + result->size < end) absorb_next(*result);
  result->owner = owner;
  result->sequence = owner == 0 ? 0 : sequence;
  result->use = Block::Use::free;
  result->requested = 0;
  if (alone) {
    free_.insert(*result);
  } else {
    free_.reposition(*result);
  }
  count(*result, +1);
}

void RangeAllocator::share(Block& block) noexcept {
  if (block.owner == 0) return;
  remove_from_free(block);
  block.use = Block::Use::taken;
  release(block, 0, 0);
}

Block* RangeAllocator::find(std::uint64_t address) const noexcept {
  const auto after =
      std::upper_bound(segments_.begin(), segments_.end(), address,
                       [](std::uint64_t a, const std::unique_ptr<Segment>& s) { return a < s->address; });
  if (after == segments_.begin()) return nullptr;
  const Segment& segment = **std::prev(after);
  if (address - segment.address >= segment.size) return nullptr;
  std::size_t granule = (address - segment.address) / granule_;
  // The last block that starts at or before it: in its granule, or in an earlier one.
  if (Block* b = segment.starts[granule]; b != nullptr && b->address <= address) return b;
  std::size_t word = granule / 64;
  std::uint64_t bits = segment.start_bits[word] & ((std::uint64_t{1} << (granule % 64)) - 1);
  while (bits == 0) bits = segment.start_bits[--word];  // the first granule has a start
  return segment.starts[word * 64 + (63 - std::countl_zero(bits))];
}

void RangeAllocator::add_spare() {
  Block& block = objects_.emplace_back();
  try {
    block.home = home_;
    free_.adopt(block);
    // Room for every object, so that dropping a block never allocates.
    if (spare_.capacity() < objects_.size()) spare_.reserve(objects_.size() * 2 + 64);
    spare_.push_back(&block);
  } catch (...) {
    objects_.pop_back();
    throw;
  }
}

Block& RangeAllocator::new_block() noexcept {
  assert(!spare_.empty());
  Block& block = *spare_.back();
  spare_.pop_back();
  return block;
}

void RangeAllocator::drop_block(Block& block) noexcept {
  block.use = Block::Use::none;
  block.segment = nullptr;
  block.previous = block.next = nullptr;
  block.address = block.size = block.requested = 0;
  spare_.push_back(&block);
}

void RangeAllocator::put_start(Block& block) noexcept {
  Segment& segment = *block.segment;
  const std::size_t granule = (block.address - segment.address) / granule_;
  assert(segment.starts[granule] == nullptr);
  segment.starts[granule] = &block;
  segment.start_bits[granule / 64] |= std::uint64_t{1} << (granule % 64);
}

void RangeAllocator::remove_start(const Block& block) noexcept {
  Segment& segment = *block.segment;
  const std::size_t granule = (block.address - segment.address) / granule_;
  segment.starts[granule] = nullptr;
  segment.start_bits[granule / 64] &= ~(std::uint64_t{1} << (granule % 64));
}

void RangeAllocator::count(const Block& block, int sign) noexcept {
  if (!block.is_split()) return;
  split_free_blocks_ += sign;
  split_free_bytes_ += sign * static_cast<std::int64_t>(block.size);
}

void RangeAllocator::remove_from_free(Block& block) noexcept {
  count(block, -1);
  free_.erase(block);
}

// Joins `block` and its neighbour, which is not among the free blocks.
void RangeAllocator::absorb_next(Block& block) noexcept {
  Block& next = *block.next;
  remove_start(next);
  block.size += next.size;
  block.next = next.next;
  if (next.next != nullptr) next.next->previous = &block;
  drop_block(next);
}

void RangeAllocator::absorb_previous(Block& block) noexcept {
  Block& previous = *block.previous;
  remove_start(block);
  remove_start(previous);
  block.address = previous.address;
  block.size += previous.size;
  block.previous = previous.previous;
  (previous.previous == nullptr ? block.segment->first : previous.previous->next) = &block;
  drop_block(previous);
  put_start(block);
}

void RangeAllocator::mark_owner(Segment& segment, StreamUid owner) noexcept {
  if (owner != 0 && !segment.first->is_split()) segment.stream = owner;  // one stream has all of it
}

}  // namespace mojo::memory
