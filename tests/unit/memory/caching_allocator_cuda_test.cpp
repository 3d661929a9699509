// CachingAllocator against a model of CUDA's allocator, and against a device that fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "memory/caching_allocator.h"
#include "unit/memory/fakes.h"
#include "unit/ordering/seeds.h"

namespace mojo::memory {
namespace {

using mojo::test::below;
using test::FakeSegments;
using test::random_size;
using test::SteppedStreams;

constexpr std::uint64_t MiB = std::uint64_t{1} << 20;

// CUDA's allocator for one stream, as plainly as can be: lists that are searched from one end to the other.
class NaiveCuda {
 public:
  struct Piece {
    std::uint64_t offset, size;
    bool taken;
  };
  struct Segment {
    std::uint64_t address, size;
    bool small;
    std::vector<Piece> pieces;
  };
  // Where the block must come from; a new segment at `next` if none fits.
  std::uint64_t allocate(std::uint64_t bytes, std::uint64_t next) {
    const std::uint64_t size = bytes < 512 ? 512 : (bytes + 511) / 512 * 512;
    const bool small = size <= MiB;
    Segment* best = nullptr;
    std::size_t at = 0;
    for (Segment& segment : segments) {
      if (segment.small != small) continue;
      for (std::size_t i = 0; i < segment.pieces.size(); ++i) {
        const Piece& p = segment.pieces[i];
        if (p.taken || p.size < size) continue;
        if (best == nullptr || p.size < best->pieces[at].size ||
            (p.size == best->pieces[at].size && segment.address + p.offset < best->address + best->pieces[at].offset)) {
          best = &segment;
          at = i;
        }
      }
    }
    if (best == nullptr) {
      const std::uint64_t bytes_of_segment = small             ? 2 * MiB
                                             : size < 10 * MiB ? 20 * MiB
                                                               : (size + 2 * MiB - 1) / (2 * MiB) * (2 * MiB);
      segments.push_back({next, bytes_of_segment, small, {{0, bytes_of_segment, false}}});
      best = &segments.back();
      at = 0;
    }
    Piece& p = best->pieces[at];
    const std::uint64_t rest = p.size - size;
    p.taken = true;
    const std::uint64_t address = best->address + p.offset;
    if (small ? rest >= 512 : rest > MiB) {
      p.size = size;
      best->pieces.insert(best->pieces.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                          Piece{address - best->address + size, rest, false});
    }
    return address;
  }
  void free(std::uint64_t address) {
    for (Segment& segment : segments) {
      for (Piece& p : segment.pieces) {
        if (segment.address + p.offset == address) p.taken = false;
      }
      std::vector<Piece> merged;
      for (const Piece& p : segment.pieces) {
        if (!merged.empty() && !merged.back().taken && !p.taken) {
          merged.back().size += p.size;
        } else {
          merged.push_back(p);
        }
      }
      segment.pieces = merged;
    }
  }
  void empty_cache() {
    std::erase_if(segments, [](const Segment& s) { return s.pieces.size() == 1 && !s.pieces[0].taken; });
  }
  std::vector<Segment> segments;
};

// M-06: with one stream every block is where CUDA's allocator would have put it, so all its figures are the same.
TEST(CachingAllocatorProperty, OnOneStreamPlacesBlocksAsCudaDoes) {
  for (const std::uint64_t seed : mojo::test::seeds()) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    FakeSegments segments;
    SteppedStreams streams;
    CachingAllocator allocator(segments, streams);
    NaiveCuda cuda;
    std::vector<Allocation> live;
    for (int step = 0; step < 6000; ++step) {
      const std::uint64_t choice = below(random, 100);
      if (choice < (step / 500 % 2 == 0 ? 55u : 45u)) {
        const std::uint64_t bytes = random_size(random);
        const int calls = segments.calls();
        Allocation a;
        ASSERT_TRUE(allocator.allocate(bytes, 1, a).ok());
        streams.enqueue(1);
        const std::uint64_t expected = cuda.allocate(bytes, a.ptr.address);
        ASSERT_EQ(a.ptr.address, expected) << "step " << step;
        ASSERT_EQ(segments.live(), cuda.segments.size()) << "step " << step << ", " << segments.calls() - calls;
        live.push_back(a);
      } else if (choice < 98 && !live.empty()) {
        const std::size_t i = below(random, live.size());
        ASSERT_TRUE(allocator.free(live[i].block).ok());
        cuda.free(live[i].ptr.address);
        live[i] = live.back();
        live.pop_back();
      } else if (choice == 99) {
        streams.finish(1);
        ASSERT_TRUE(allocator.empty_cache().ok());
        cuda.empty_cache();
      }
      if (step % 100 != 0) continue;
      std::int64_t reserved = 0, split = 0, split_bytes = 0;
      for (const auto& segment : cuda.segments) {
        reserved += static_cast<std::int64_t>(segment.size);
        for (const auto& p : segment.pieces) {
          if (p.taken || segment.pieces.size() == 1) continue;
          ++split;
          split_bytes += static_cast<std::int64_t>(p.size);
        }
      }
      const DeviceStatistics s = allocator.statistics();
      ASSERT_EQ(s.reserved_bytes.of(StatType::aggregate).current, reserved);
      ASSERT_EQ(s.inactive_split.of(StatType::aggregate).current, split);
      ASSERT_EQ(s.inactive_split_bytes.of(StatType::aggregate).current, split_bytes);
    }
  }
}

// M-07: whichever call of the device fails, the allocation either succeeds by releasing the cache or fails cleanly, and
// the next run of the whole scenario works.
TEST(CachingAllocatorSweep, FailsTheNthSegment) {
  for (const StatusCode failure : {StatusCode::out_of_memory, StatusCode::device_lost}) {
    int failures = 0;
    for (int nth = 1; nth <= 14; ++nth) {
      SCOPED_TRACE(std::string(status_code_name(failure)) + " at call " + std::to_string(nth));
      FakeSegments segments;
      SteppedStreams streams;
      CachingAllocator allocator(segments, streams);
      const auto scenario = [&]() -> Status {
        std::vector<Allocation> held;
        Status first;
        for (int i = 0; i < 10; ++i) {
          const StreamUid stream = static_cast<StreamUid>(1 + i % 3);
          Allocation a;
          const Status status = allocator.allocate(static_cast<std::uint64_t>(i + 1) * 3 * MiB, stream, a);
          if (!status.ok()) {
            EXPECT_EQ(a.block, nullptr);
            if (first.ok()) first = status;
            continue;
          }
          streams.enqueue(stream);
          EXPECT_TRUE(allocator.record_stream(a.block, static_cast<StreamUid>(1 + (i + 1) % 3)).ok());
          streams.enqueue(static_cast<StreamUid>(1 + (i + 1) % 3));
          held.push_back(a);
          if (i % 2 == 1) {
            EXPECT_TRUE(allocator.free(held.front().block).ok());
            held.erase(held.begin());
          }
        }
        for (const Allocation& a : held) EXPECT_TRUE(allocator.free(a.block).ok());
        streams.finish_all();
        return first;
      };
      segments.fail_at = nth;
      segments.failure = failure;
      const Status status = scenario();
      if (failure == StatusCode::device_lost && !status.ok()) {
        EXPECT_EQ(status.code(), StatusCode::device_lost);
        ++failures;
      } else {
        EXPECT_TRUE(status.ok()) << "one refusal is survived by the retry: " << status.message();
      }
      segments.fail_at = 0;
      EXPECT_TRUE(scenario().ok());
      EXPECT_TRUE(allocator.empty_cache().ok());
      EXPECT_EQ(segments.live(), 0u);
      EXPECT_EQ(allocator.statistics().reserved_bytes.of(StatType::aggregate).current, 0);
    }
    if (failure == StatusCode::device_lost) {
      EXPECT_GE(failures, 8) << "the sweep has covered the scenario";
    }
  }
}

}  // namespace
}  // namespace mojo::memory
