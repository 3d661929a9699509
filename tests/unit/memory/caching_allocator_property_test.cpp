// CachingAllocator against naive models, over thousands of random steps.
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
      ASSERT_TRUE(other.allocation.ptr.address >= end || begin >= other.allocation.ptr.address + other.allocation.bytes)
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
    const Status status =
        below(random_, 2) == 0 ? allocator_.free(live.allocation.block) : allocator_.free(live.allocation.ptr);
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
      std::int64_t segments = 0, reserved = 0, allocations = 0, allocated = 0, active = 0, active_bytes = 0,
                   requested = 0, split = 0, split_bytes = 0;
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

}  // namespace
}  // namespace mojo::memory
