// RangeAllocator: arithmetic on ranges, against a list of them.
#include "memory/range_allocator.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "unit/ordering/seeds.h"

namespace mojo::memory {
namespace {

using mojo::test::below;

constexpr std::uint64_t granule = 512;

TEST(RangeAllocator, TakesTheSmallestThatFitsAtTheLowestAddress) {
  RangeAllocator ranges(granule);
  ranges.add_segment(0x300000, 8192, 1, 0);
  ranges.add_segment(0x200000, 4096, 1, 0);
  ranges.add_segment(0x100000, 4096, 1, 0);
  EXPECT_EQ(ranges.best_fit(1, 4096)->address, 0x100000u);
  EXPECT_EQ(ranges.best_fit(1, 4097)->address, 0x300000u);
  EXPECT_EQ(ranges.best_fit(1, 8193), nullptr);
  EXPECT_EQ(ranges.best_fit(2, 512), nullptr);
}

TEST(RangeAllocator, OwnersSeeTheirOwnAndEveryonesMemory) {
  RangeAllocator ranges(granule);
  Block& a = ranges.add_segment(0x100000, 8192, 1, 5);
  Block& b = ranges.add_segment(0x200000, 4096, 2, 7);
  EXPECT_EQ(ranges.best_fit(1, 512), &a);
  ranges.share(b);
  EXPECT_EQ(ranges.best_fit(1, 512)->address, 0x200000u) << "the smaller one, though it is everyone's";
  EXPECT_EQ(ranges.best_fit(9, 512)->address, 0x200000u);
}

TEST(RangeAllocator, LeavesWhatIsWorthKeeping) {
  RangeAllocator ranges(granule);
  ranges.add_segment(0x100000, 8192, 1, 3);
  ranges.prepare();
  Block& a = ranges.take(*ranges.best_fit(1, 1024), 1024, 512, 1);
  EXPECT_EQ(a.size, 1024u);
  EXPECT_EQ(a.next->size, 7168u);
  EXPECT_EQ(a.next->sequence, 3u) << "the rest keeps its label";
  ranges.prepare();
  Block& b = ranges.take(*ranges.best_fit(1, 1024), 1024, 6145, 1);
  EXPECT_EQ(b.size, 7168u) << "the rest is too small to leave";
  EXPECT_EQ(ranges.split_free_blocks(), 0);
  EXPECT_EQ(ranges.find(0x100000 + 1023), &a);
  EXPECT_EQ(ranges.find(0x100000 + 1024), &b);
  EXPECT_EQ(ranges.find(0x100000 + 8191), &b);
  EXPECT_EQ(ranges.find(0x100000 + 8192), nullptr);
  EXPECT_EQ(ranges.find(0x100000 - 1), nullptr);
}

// What is everyone's joins an owner's memory from both sides, and what lies beyond it too.
TEST(RangeAllocator, CoalescesAcrossWhatIsEveryones) {
  RangeAllocator ranges(granule);
  ranges.add_segment(0x100000, 5 * 512, 1, 0);
  Block* blocks[5];
  for (Block*& b : blocks) {
    ranges.prepare();
    b = &ranges.take(*ranges.best_fit(1, 512), 512, 512, 1);
  }
  ranges.release(*blocks[0], 1, 4);
  ranges.release(*blocks[1], 2, 9);
  ranges.release(*blocks[3], 2, 9);
  ranges.release(*blocks[4], 1, 3);
  EXPECT_EQ(ranges.split_free_blocks(), 4);
  ranges.share(*blocks[1]);
  ranges.share(*blocks[3]);
  EXPECT_EQ(ranges.split_free_blocks(), 4) << "sharing takes nothing from an owner";
  ranges.release(*blocks[2], 1, 2);
  EXPECT_EQ(ranges.split_free_blocks(), 0);
  Block* all = ranges.best_fit(1, 5 * 512);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(all->sequence, 4u) << "the last of the positions";
  EXPECT_EQ(ranges.best_fit(2, 512), nullptr);
  ranges.remove_segment(*all->segment);
  EXPECT_TRUE(ranges.free_blocks().empty());
  EXPECT_EQ(ranges.find(0x100000), nullptr);
}

// Against a map of ranges, with two owners and everyone.
TEST(RangeAllocatorProperty, EqualsAListOfRanges) {
  struct Range {
    std::uint64_t size;
    bool free;
    StreamUid owner;
    std::uint64_t sequence;
  };
  for (const std::uint64_t seed : mojo::test::seeds()) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    RangeAllocator ranges(granule);
    std::map<std::uint64_t, Range> model;
    constexpr std::uint64_t segment_bytes = 64 * granule;
    const auto segment_of = [](std::uint64_t address) { return address / 0x100000; };
    for (std::uint64_t i = 1; i <= 4; ++i) {
      ranges.add_segment(i * 0x100000, segment_bytes, 1, 0);
      model[i * 0x100000] = {segment_bytes, true, 1, 0};
    }
    std::vector<Block*> taken;
    const auto coalesce = [&](std::uint64_t address) {
      auto it = model.find(address);
      const StreamUid owner = it->second.owner;
      const auto joins = [&](std::map<std::uint64_t, Range>::iterator other) {
        return segment_of(other->first) == segment_of(it->first) && other->second.free &&
               (other->second.owner == owner || other->second.owner == 0);
      };
      for (auto next = std::next(it); next != model.end() && joins(next); next = std::next(it)) {
        it->second.size += next->second.size;
        it->second.sequence = std::max(it->second.sequence, next->second.sequence);
        model.erase(next);
      }
      while (it != model.begin() && joins(std::prev(it))) {
        const auto previous = std::prev(it);
        previous->second = {previous->second.size + it->second.size, true, owner,
                            std::max(previous->second.sequence, it->second.sequence)};
        model.erase(it);
        it = previous;
      }
    };
    for (int step = 0; step < 8000; ++step) {
      const auto owner = static_cast<StreamUid>(1 + below(random, 2));
      const std::uint64_t choice = below(random, 10);
      if (choice < 5) {
        const std::uint64_t size = (1 + below(random, below(random, 4) ? 6 : 40)) * granule;
        auto best = model.end();
        for (auto it = model.begin(); it != model.end(); ++it) {
          const Range& r = it->second;
          if (!r.free || r.size < size || (r.owner != owner && r.owner != 0)) continue;
          if (best == model.end() || r.size < best->second.size) best = it;
        }
        Block* found = ranges.best_fit(owner, size);
        ASSERT_EQ(found == nullptr, best == model.end());
        if (found == nullptr) continue;
        ASSERT_EQ(found->address, best->first);
        ranges.prepare();
        Block& block = ranges.take(*found, size, granule, owner);
        const std::uint64_t rest = best->second.size - size;
        if (rest > 0) model[best->first + size] = {rest, true, best->second.owner, best->second.sequence};
        best->second = {size, false, owner, 0};
        ASSERT_EQ(block.address, best->first);
        taken.push_back(&block);
      } else if (choice < 9 && !taken.empty()) {
        const std::size_t i = below(random, taken.size());
        const std::uint64_t address = taken[i]->address;
        const std::uint64_t sequence = below(random, 100);
        ranges.release(*taken[i], owner, sequence);
        taken[i] = taken.back();
        taken.pop_back();
        model[address] = {model[address].size, true, owner, sequence};
        coalesce(address);
      } else {
        // Someone's oldest free range becomes everyone's.
        const auto it = ranges.free_blocks().lower_bound({1, 0, 0});
        if (it == ranges.free_blocks().end()) continue;
        const std::uint64_t address = (*it)->address;
        ranges.share(**it);
        model[address].owner = 0;
        model[address].sequence = 0;
        coalesce(address);
      }
      // The same ranges, from the first to the last, and each found by its first and its last byte.
      auto expected = model.begin();
      std::int64_t split = 0;
      for (const auto& segment : ranges.segments()) {
        for (const Block* b = segment->first; b != nullptr; b = b->next, ++expected) {
          ASSERT_NE(expected, model.end());
          ASSERT_EQ(b->address, expected->first) << "step " << step;
          ASSERT_EQ(b->size, expected->second.size) << "step " << step;
          ASSERT_EQ(b->use == Block::Use::free, expected->second.free);
          if (expected->second.free) {
            ASSERT_EQ(b->owner, expected->second.owner);
            ASSERT_EQ(b->sequence, expected->second.sequence);
            split += b->is_split();
          }
          if (step % 16 == 0) {
            ASSERT_EQ(ranges.find(b->address), b);
            ASSERT_EQ(ranges.find(b->address + b->size - 1), b);
          }
        }
      }
      ASSERT_EQ(expected, model.end());
      ASSERT_EQ(ranges.split_free_blocks(), split);
    }
  }
}

}  // namespace
}  // namespace mojo::memory
