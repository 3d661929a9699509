// CachingAllocator against naive models, over thousands of random steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "memory/block_pool.h"
#include "memory/caching_allocator.h"
#include "unit/memory/fakes.h"
#include "unit/ordering/seeds.h"

namespace mojo::memory {
namespace {

using mojo::test::below;
using test::FakeSegments;
using test::SteppedStreams;

constexpr std::uint64_t KiB = 1024, MiB = 1024 * KiB;

std::uint64_t random_size(std::mt19937_64& random) {
  switch (below(random, 8)) {
    case 0:
    case 1:
    case 2: return 1 + below(random, 4 * KiB);
    case 3:
    case 4: return 1 + below(random, MiB);
    case 5:
    case 6: return MiB + below(random, 9 * MiB);
    default: return 9 * MiB + below(random, 30 * MiB);
  }
}

// Everything that queued work may still do to memory: [begin, end) is touched by operations up to `position`.
struct Access {
  std::uint64_t begin, end;
  Position position;
};

struct Live {
  Allocation allocation;
  std::uint64_t requested;
  StreamUid owner;
  std::vector<StreamUid> users;
};

class Program {
 public:
  Program(std::uint64_t seed, bool fences, std::uint64_t capacity)
      : random_(seed), streams_(fences), allocator_(segments_, streams_) {
    segments_.capacity = capacity;
    segments_.on_free = [this](std::uint64_t address, std::uint64_t bytes) {
      for (const Access& access : accesses_) {
        if (access.begin < address + bytes && address < access.end) {
          ASSERT_TRUE(streams_.really_complete(access.position)) << "returned memory that queued work may use";
        }
      }
    };
  }

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      // By turns much completes and little does: then it is the order between streams that frees memory.
      slow_ = i / 1000 % 2 == 1;
      step();
      if (i % 50 == 0) check_figures();
      if (i % 200 == 0) forget_complete_accesses();
    }
    finish();
  }

 private:
  StreamUid pick_stream() { return static_cast<StreamUid>(1 + below(random_, 6)); }

  void step() {
    switch (below(random_, 16)) {
      case 0:
      case 1:
      case 2:
      case 3: allocate(); break;
      case 4:
      case 5:
      case 6: free_one(); break;
      case 7:
      case 8: record_stream(); break;
      case 9: streams_.enqueue(pick_stream()); break;
      case 10: records_.push_back(streams_.record(pick_stream())); break;
      case 11:
        if (!records_.empty()) streams_.wait_for(pick_stream(), records_[below(random_, records_.size())]);
        break;
      case 12:
        if (slow_) {
          const StreamUid stream = pick_stream(), other = pick_stream();
          if (stream != other) streams_.wait_stream(stream, other);
          break;
        }
        [[fallthrough]];
      case 13:
        if (slow_ && below(random_, 4) != 0) break;
        for (std::uint64_t n = below(random_, 12); n > 0; --n) streams_.step(pick_stream());
        break;
      case 14: streams_.learn(pick_stream()); break;
      default:
        if (below(random_, 20) == 0) {
          ASSERT_TRUE(allocator_.empty_cache().ok());
        } else if (below(random_, 20) == 0) {
          streams_.finish(pick_stream());
        }
        break;
    }
  }

  void allocate() {
    const std::uint64_t bytes = random_size(random_);
    const StreamUid stream = pick_stream();
    Allocation a;
    const Status status = allocator_.allocate(bytes, stream, a);
    if (!status.ok()) {
      ASSERT_EQ(status.code(), StatusCode::out_of_memory) << status.message();
      ASSERT_NE(segments_.capacity, 0u);
      ++failed_;
      free_one();
      return;
    }
    ASSERT_GE(a.bytes, bytes);
    ASSERT_EQ(a.bytes % 512, 0u);
    ASSERT_TRUE(segments_.contains(a.ptr.address, a.bytes)) << "not inside a segment";
    const std::uint64_t begin = a.ptr.address, end = begin + a.bytes;
    for (const Live& other : live_) {
      ASSERT_TRUE(other.allocation.ptr.address >= end ||
                  begin >= other.allocation.ptr.address + other.allocation.bytes)
          << "overlaps a live block";
    }
    for (const Access& access : accesses_) {
      if (access.begin >= end || begin >= access.end) continue;
      ASSERT_TRUE(streams_.may_follow(stream, access.position))
          << "stream " << stream << " got memory that " << access.position.stream << "@" << access.position.sequence
          << " may still use";
    }
    live_.push_back({a, bytes, stream, {}});
    allocated_.increase(1);
    allocated_bytes_.increase(static_cast<std::int64_t>(a.bytes));
    if (below(random_, 4) != 0) streams_.enqueue(stream);
  }

  void record_stream() {
    if (live_.empty()) return;
    Live& live = live_[below(random_, live_.size())];
    const StreamUid stream = pick_stream();
    if (below(random_, 2) == 0) streams_.enqueue(stream);
    const DevicePtr inside = live.allocation.ptr + below(random_, live.allocation.bytes);
    ASSERT_TRUE(allocator_.record_stream(inside, stream).ok());
    live.users.push_back(stream);
    if (below(random_, 2) == 0) streams_.enqueue(stream);
  }

  void free_one() {
    if (live_.empty()) return;
    const std::size_t i = below(random_, live_.size());
    const Live live = live_[i];
    live_[i] = live_.back();
    live_.pop_back();
    const std::uint64_t begin = live.allocation.ptr.address, end = begin + live.allocation.bytes;
    accesses_.push_back({begin, end, {live.owner, streams_.position(live.owner)}});
    for (const StreamUid user : live.users) accesses_.push_back({begin, end, {user, streams_.position(user)}});
    const Status status = below(random_, 2) == 0 ? allocator_.free(live.allocation.block) : allocator_.free(live.allocation.ptr);
    ASSERT_TRUE(status.ok()) << status.message();
    allocated_.decrease(1);
    allocated_bytes_.decrease(static_cast<std::int64_t>(live.allocation.bytes));
  }

  void forget_complete_accesses() {
    std::erase_if(accesses_, [&](const Access& a) { return streams_.really_complete(a.position); });
  }

  // All figures once more, from the snapshot and from the test's own list.
  void check_figures() {
    const DeviceStatistics s = allocator_.statistics();
    const auto snapshot = allocator_.snapshot();
    const auto stat = [](const StatArray& a) { return a.of(StatType::aggregate); };
    ASSERT_EQ(stat(s.allocation), allocated_);
    ASSERT_EQ(stat(s.allocated_bytes), allocated_bytes_);
    std::int64_t requested_live = 0;
    for (const Live& live : live_) requested_live += static_cast<std::int64_t>(live.requested);

    struct Figures {
      std::int64_t segments = 0, reserved = 0, allocations = 0, allocated = 0, active = 0, active_bytes = 0, requested = 0,
                   split = 0, split_bytes = 0;
    } sum[3];
    std::uint64_t requested_taken = 0;
    for (const SegmentSnapshot& segment : snapshot) {
      ASSERT_TRUE(segments_.contains(segment.address.address, segment.total_size));
      for (const std::size_t type : {std::size_t{0}, std::size_t{segment.is_large ? 2u : 1u}}) {
        Figures& f = sum[type];
        ++f.segments;
        f.reserved += static_cast<std::int64_t>(segment.total_size);
        for (const BlockSnapshot& block : segment.blocks) {
          if (block.state == BlockState::allocated) {
            ++f.allocations;
            f.allocated += static_cast<std::int64_t>(block.size);
            if (type == 0) requested_taken += block.requested;
          }
          if (block.state != BlockState::inactive) {
            ++f.active;
            f.active_bytes += static_cast<std::int64_t>(block.size);
            f.requested += static_cast<std::int64_t>(block.requested);
          } else if (segment.blocks.size() > 1) {
            ++f.split;
            f.split_bytes += static_cast<std::int64_t>(block.size);
          }
        }
      }
      std::uint64_t at = segment.address.address;
      for (const BlockSnapshot& block : segment.blocks) {
        ASSERT_EQ(block.address.address, at) << "a gap or an overlap";
        ASSERT_EQ(block.size % 512, 0u);
        at += block.size;
      }
      ASSERT_EQ(at, segment.address.address + segment.total_size);
      for (std::size_t i = 1; i < segment.blocks.size(); ++i) {
        const BlockSnapshot &a = segment.blocks[i - 1], &b = segment.blocks[i];
        ASSERT_FALSE(a.state == BlockState::inactive && b.state == BlockState::inactive && a.stream == b.stream)
            << "free neighbours of one owner";
      }
    }
    ASSERT_EQ(static_cast<std::int64_t>(requested_taken), requested_live);
    for (std::size_t type = 0; type < 3; ++type) {
      ASSERT_EQ(s.segment[type].current, sum[type].segments);
      ASSERT_EQ(s.reserved_bytes[type].current, sum[type].reserved);
      ASSERT_EQ(s.allocation[type].current, sum[type].allocations);
      ASSERT_EQ(s.allocated_bytes[type].current, sum[type].allocated);
      ASSERT_EQ(s.active[type].current, sum[type].active);
      ASSERT_EQ(s.active_bytes[type].current, sum[type].active_bytes);
      ASSERT_EQ(s.requested_bytes[type].current, sum[type].requested);
      ASSERT_EQ(s.inactive_split[type].current, sum[type].split);
      ASSERT_EQ(s.inactive_split_bytes[type].current, sum[type].split_bytes);
    }
    ASSERT_EQ(static_cast<std::uint64_t>(stat(s.reserved_bytes).current), segments_.used());
    ASSERT_EQ(s.num_device_alloc - s.num_device_free, static_cast<std::int64_t>(segments_.live()));
    ASSERT_EQ(s.num_ooms, failed_);
  }

  void finish() {
    while (!live_.empty() && !::testing::Test::HasFatalFailure()) free_one();
    streams_.finish_all();
    for (StreamUid s = 1; s <= 6; ++s) streams_.learn(s);
    ASSERT_TRUE(allocator_.empty_cache().ok());
    check_figures();
    EXPECT_EQ(segments_.live(), 0u) << "memory that does not come back";
    EXPECT_EQ(streams_.outstanding_fences(), 0u);
    EXPECT_EQ(allocator_.statistics().active_bytes.of(StatType::aggregate).current, 0);
  }

  std::mt19937_64 random_;
  FakeSegments segments_;
  SteppedStreams streams_;
  CachingAllocator allocator_;
  std::vector<Live> live_;
  std::vector<Access> accesses_;
  std::vector<SteppedStreams::Record> records_;
  Stat allocated_, allocated_bytes_;
  int failed_ = 0;
  bool slow_ = false;
};

// M-02, M-03, M-06: no two live blocks overlap; memory is handed to a stream only if every recorded use is complete or
// comes before its next operation; figures equal a recount; everything comes back.
TEST(CachingAllocatorProperty, NeverHandsOutMemoryInUse) {
  for (const std::uint64_t seed : mojo::test::seeds()) {
    for (const bool fences : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + (fences ? ", fences" : ", positions"));
      Program(seed, fences, 0).run(6000);
    }
  }
}

// M-07: the same on a device that is mostly full, where the cache is released and streams are waited for.
TEST(CachingAllocatorProperty, NeverHandsOutMemoryInUseWhenFull) {
  for (const std::uint64_t seed : mojo::test::seeds()) {
    for (const bool fences : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + (fences ? ", fences" : ", positions"));
      Program(seed, fences, 150 * MiB).run(6000);
    }
  }
}

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
      const std::uint64_t bytes_of_segment = small              ? 2 * MiB
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
