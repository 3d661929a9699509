// PinnedAllocator: exact sizes, lookup by range, and blocks that queued copies use.
#include "memory/pinned_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "unit/memory/fakes.h"
#include "unit/ordering/seeds.h"

namespace mojo::memory {
namespace {

using mojo::test::below;
using test::SteppedStreams;
using ::testing::HasSubstr;

constexpr std::uint64_t KiB = 1024, MiB = 1024 * KiB;
constexpr StreamUid A = 1, B = 2;

// Addresses only: nothing is touched.
class FakePinned final : public PinnedSource {
 public:
  std::uint64_t capacity = 0;
  std::function<void(std::uintptr_t, std::uint64_t)> on_free;
  Status allocate(std::uint64_t bytes, void*& out) noexcept override {
    const std::lock_guard lock(mutex_);
    ++calls_;
    if (capacity != 0 && used_ + bytes > capacity) return Status(StatusCode::out_of_memory, "the source is full");
    out = reinterpret_cast<void*>(next_);
    live_[next_] = bytes;
    next_ += bytes;  // without gaps: a lookup at the end of one finds the next
    used_ += bytes;
    return {};
  }
  Status free(void* ptr, std::uint64_t bytes) noexcept override {
    const auto address = reinterpret_cast<std::uintptr_t>(ptr);
    if (on_free) on_free(address, bytes);
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(address);
    EXPECT_TRUE(found != live_.end() && found->second == bytes);
    used_ -= bytes;
    live_.erase(address);
    return {};
  }
  std::uint64_t used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  int calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, std::uint64_t> live_;
  std::uintptr_t next_ = 0x200000000;
  std::uint64_t used_ = 0;
  int calls_ = 0;
};

void* at(void* base, std::uint64_t offset) { return static_cast<char*>(base) + offset; }

class PinnedAllocatorTest : public ::testing::TestWithParam<bool> {
 protected:
  PinnedAllocation get(std::uint64_t bytes) {
    PinnedAllocation a;
    const Status status = allocator.allocate(bytes, a);
    EXPECT_TRUE(status.ok()) << status.message();
    return a;
  }
  FakePinned source;
  SteppedStreams streams{GetParam()};
  PinnedAllocator allocator{source, streams};
};

INSTANTIATE_TEST_SUITE_P(, PinnedAllocatorTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Fences" : "Positions"; });

TEST_P(PinnedAllocatorTest, SizesAreExactAndNotPowersOfTwo) {
  EXPECT_EQ(get(0).block, nullptr);
  EXPECT_EQ(get(1).bytes, 64u);
  EXPECT_EQ(get(65).bytes, 128u);
  EXPECT_EQ(get(33 * MiB + 1).bytes, 33 * MiB + 64);
  EXPECT_EQ(source.used(), 64 + 128 + 33 * MiB + 64);
}

TEST_P(PinnedAllocatorTest, ReusesSizesThatAreCloseAndNoOthers) {
  const PinnedAllocation a = get(9 * MiB);
  ASSERT_TRUE(allocator.free(a.block).ok());
  EXPECT_NE(get(7 * MiB).ptr, a.ptr) << "a quarter would be wasted";
  EXPECT_NE(get(10 * MiB).ptr, a.ptr);
  EXPECT_EQ(get(8 * MiB).ptr, a.ptr);
}

// C-08
TEST_P(PinnedAllocatorTest, FindsTheBlockAroundAnyAddress) {
  const PinnedAllocation a = get(1000), b = get(1000), c = get(1000);
  for (const PinnedAllocation& x : {a, b, c}) {
    EXPECT_EQ(allocator.find(x.ptr).block, x.block);
    EXPECT_EQ(allocator.find(at(x.ptr, 500)).block, x.block);
    EXPECT_EQ(allocator.find(at(x.ptr, x.bytes - 1)).ptr, x.ptr);
    EXPECT_EQ(PinnedAllocator::allocation_of(*x.block).ptr, x.ptr);
    EXPECT_EQ(&PinnedAllocator::owner_of(x.block), &allocator);
  }
  EXPECT_EQ(allocator.find(at(a.ptr, a.bytes)).block, b.block);
  EXPECT_EQ(allocator.find(at(c.ptr, c.bytes)).block, nullptr);
  EXPECT_EQ(allocator.find(&streams).block, nullptr);
  EXPECT_EQ(allocator.find(nullptr).block, nullptr);
  ASSERT_TRUE(allocator.free(b.ptr).ok());
  EXPECT_EQ(allocator.find(at(b.ptr, 5)).block, nullptr) << "a freed block is not pinned memory of anyone";
}

// C-11
TEST_P(PinnedAllocatorTest, ABlockInUseByACopyIsNotReused) {
  const PinnedAllocation a = get(4096);
  const Position copy = streams.enqueue(A);
  ASSERT_TRUE(allocator.record_use(at(a.ptr, 100), copy).ok());
  streams.enqueue(A);
  ASSERT_TRUE(allocator.free(a.block).ok());
  EXPECT_EQ(allocator.statistics().live.current, 0);
  EXPECT_EQ(allocator.statistics().active_requests.current, 1);
  EXPECT_NE(get(4096).ptr, a.ptr);
  streams.step(A);
  streams.learn(A);
  EXPECT_EQ(get(4096).ptr, a.ptr) << "what is queued behind the copy is none of its business";
}

// C-11: being ordered after the copy is not enough, since the host writes at once.
TEST_P(PinnedAllocatorTest, OrderIsNotEnough) {
  const PinnedAllocation a = get(4096);
  ASSERT_TRUE(allocator.record_use(a.block, streams.enqueue(A)).ok());
  ASSERT_TRUE(allocator.free(a.block).ok());
  streams.wait_stream(B, A);
  EXPECT_NE(get(4096).ptr, a.ptr);
}

// C-11
TEST_P(PinnedAllocatorTest, ARecordedStreamCountsUpToTheFree) {
  const PinnedAllocation a = get(4096);
  streams.enqueue(A);
  ASSERT_TRUE(allocator.record_use(a.block, {A, 1}).ok());
  ASSERT_TRUE(allocator.record_stream(a.ptr, A).ok());
  ASSERT_TRUE(allocator.record_use(a.block, {A, 1}).ok());
  streams.enqueue(A);
  ASSERT_TRUE(allocator.free(a.block).ok());
  streams.step(A);
  streams.learn(A);
  EXPECT_NE(get(4096).ptr, a.ptr);
  streams.step(A);
  streams.learn(A);
  EXPECT_EQ(get(4096).ptr, a.ptr);
}

TEST_P(PinnedAllocatorTest, ACompleteUseCostsNothing) {
  const PinnedAllocation a = get(4096);
  ASSERT_TRUE(allocator.record_use(a.block, streams.enqueue(A)).ok());
  ASSERT_TRUE(allocator.record_use(a.block, {B, 0}).ok());
  streams.finish(A);
  streams.learn(A);
  ASSERT_TRUE(allocator.free(a.block).ok());
  EXPECT_EQ(allocator.statistics().active_requests.current, 0);
  EXPECT_EQ(streams.records, 0);
  EXPECT_EQ(get(4096).ptr, a.ptr);
}

// The driver's fence tells what nobody has learnt otherwise.
TEST(PinnedAllocatorFences, AreAskedBeforeTheDriverIsAskedForMore) {
  FakePinned source;
  SteppedStreams streams(true);
  PinnedAllocator allocator(source, streams);
  PinnedAllocation a, b;
  ASSERT_TRUE(allocator.allocate(4096, a).ok());
  ASSERT_TRUE(allocator.record_use(a.block, streams.enqueue(A)).ok());
  ASSERT_TRUE(allocator.free(a.block).ok());
  EXPECT_EQ(streams.outstanding_fences(), 1u);
  streams.finish(A);
  ASSERT_TRUE(allocator.allocate(4096, b).ok());
  EXPECT_EQ(b.ptr, a.ptr);
  EXPECT_EQ(streams.outstanding_fences(), 0u);
}

TEST_P(PinnedAllocatorTest, MistakesAreReportedAndChangeNothing) {
  const PinnedAllocation a = get(4096);
  EXPECT_EQ(allocator.free(at(a.ptr, 64)).code(), StatusCode::invalid_argument);
  EXPECT_EQ(allocator.free(&streams).code(), StatusCode::invalid_argument);
  EXPECT_EQ(allocator.record_stream(&streams, A).code(), StatusCode::invalid_argument);
  EXPECT_EQ(allocator.record_stream(a.block, 0).code(), StatusCode::invalid_argument);
  EXPECT_TRUE(allocator.free(static_cast<PinnedBlock*>(nullptr)).ok());
  EXPECT_TRUE(allocator.free(a.block).ok());
  EXPECT_EQ(allocator.free(a.block).code(), StatusCode::invalid_argument);
  EXPECT_EQ(allocator.free(a.ptr).code(), StatusCode::invalid_argument);
  EXPECT_EQ(allocator.record_use(a.block, {A, 1}).code(), StatusCode::invalid_argument);
  ASSERT_TRUE(allocator.empty_cache().ok());
  EXPECT_EQ(allocator.free(a.block).code(), StatusCode::invalid_argument);
  EXPECT_EQ(allocator.statistics().live.current, 0);
}

TEST_P(PinnedAllocatorTest, EmptyCacheKeepsWhatCopiesUse) {
  const PinnedAllocation idle = get(1 * MiB), busy = get(2 * MiB), live = get(3 * MiB);
  ASSERT_TRUE(allocator.record_use(busy.block, streams.enqueue(A)).ok());
  ASSERT_TRUE(allocator.free(idle.block).ok());
  ASSERT_TRUE(allocator.free(busy.block).ok());
  ASSERT_TRUE(allocator.empty_cache().ok());
  EXPECT_EQ(source.used(), 5 * MiB);
  EXPECT_EQ(streams.waits, 0);
  streams.finish(A);
  ASSERT_TRUE(allocator.free(live.block).ok());
  streams.learn(A);
  ASSERT_TRUE(allocator.empty_cache().ok());
  EXPECT_EQ(source.used(), 0u);
  const PinnedStatistics s = allocator.statistics();
  EXPECT_EQ(s.allocations.current, 0);
  EXPECT_EQ(s.num_host_alloc, 3);
  EXPECT_EQ(s.num_host_free, 3);
  EXPECT_EQ(s.host_free_time.count, 3);
}

TEST_P(PinnedAllocatorTest, AFullSourceGivesAfterTheCacheIsReleasedOrStreamsWaitedFor) {
  source.capacity = 10 * MiB;
  const PinnedAllocation a = get(6 * MiB);
  ASSERT_TRUE(allocator.free(a.block).ok());
  const PinnedAllocation b = get(8 * MiB);
  ASSERT_TRUE(allocator.record_use(b.block, streams.enqueue(A)).ok());
  ASSERT_TRUE(allocator.free(b.block).ok());
  source.on_free = [&](std::uintptr_t, std::uint64_t) { EXPECT_TRUE(streams.really_complete({A, 1})); };
  get(5 * MiB);
  EXPECT_EQ(streams.waits, 1);
  PinnedAllocation out;
  const Status status = allocator.allocate(8 * MiB, out);
  EXPECT_EQ(status.code(), StatusCode::out_of_memory);
  EXPECT_THAT(status.message(), HasSubstr("Tried to allocate 8.00 MiB"));
  EXPECT_THAT(status.message(), HasSubstr("the source is full"));
  get(2 * MiB);
  EXPECT_EQ(allocator.allocate(~std::uint64_t{0}, out).code(), StatusCode::out_of_memory);
}

// A loader whose batches all have another size must not keep them all.
TEST(PinnedAllocatorTrim, UnusedMemoryIsBounded) {
  FakePinned source;
  SteppedStreams streams;
  PinnedAllocator allocator(source, streams, {.keep_bytes = 8 * MiB});
  for (std::uint64_t i = 1; i < 400; ++i) {
    PinnedAllocation a;
    ASSERT_TRUE(allocator.allocate((i * 7919 % 400 + 1) * 16 * KiB, a).ok());
    ASSERT_TRUE(allocator.free(a.block).ok());
    EXPECT_LE(source.used(), (8 + 7) * MiB);
  }
}

TEST_P(PinnedAllocatorTest, StatisticsAreTorchsHostStatistics) {
  const PinnedAllocation a = get(100), b = get(5000);
  ASSERT_TRUE(allocator.free(a.block).ok());
  PinnedStatistics s = allocator.statistics();
  EXPECT_EQ(s.live_bytes, (Stat{5056, 128 + 5056, 128 + 5056, 128}));
  EXPECT_EQ(s.active_bytes, (Stat{5056, 128 + 5056, 128 + 5056, 128}));
  EXPECT_EQ(s.active_requests, (Stat{1, 2, 2, 1}));
  EXPECT_EQ(s.allocations, (Stat{2, 2, 2, 0}));
  EXPECT_EQ(s.allocated_bytes.current, 128 + 5056);
  EXPECT_EQ(s.bucket_allocation[7], 1);
  EXPECT_EQ(s.bucket_allocation[13], 1);
  EXPECT_EQ(s.host_alloc_time.count, 2);
  allocator.reset_peak_statistics();
  allocator.reset_accumulated_statistics();
  s = allocator.statistics();
  EXPECT_EQ(s.active_bytes, (Stat{5056, 5056, 0, 0}));
  EXPECT_EQ(s.num_host_alloc, 0);
  ASSERT_TRUE(allocator.free(b.block).ok());
}

// C-11, C-08: against a list of what is live and what queued copies use, over thousands of steps.
TEST(PinnedAllocatorProperty, NeverHandsOutMemoryInUse) {
  for (const std::uint64_t seed : mojo::test::seeds()) {
    for (const bool fences : {false, true}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + (fences ? ", fences" : ", positions"));
      std::mt19937_64 random(seed);
      FakePinned source;
      SteppedStreams streams(fences);
      source.capacity = 4 * MiB;
      struct Live {
        PinnedAllocation allocation;
        std::vector<Position> copies;
        std::vector<StreamUid> recorded;
      };
      struct Access {
        std::uintptr_t begin, end;
        Position position;
      };
      std::vector<Live> live;
      std::vector<Access> accesses;
      const auto address = [](const PinnedAllocation& a) { return reinterpret_cast<std::uintptr_t>(a.ptr); };
      const auto check_complete = [&](std::uintptr_t begin, std::uint64_t bytes) {
        for (const Access& access : accesses) {
          if (access.begin < begin + bytes && begin < access.end) {
            ASSERT_TRUE(streams.really_complete(access.position)) << "a queued copy still uses it";
          }
        }
      };
      source.on_free = check_complete;
      PinnedAllocator allocator(source, streams, {.keep_bytes = MiB});
      const auto free_one = [&](std::size_t i) {
        const Live freed = live[i];
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
        const std::uintptr_t begin = address(freed.allocation), end = begin + freed.allocation.bytes;
        for (const Position& p : freed.copies) accesses.push_back({begin, end, p});
        for (const StreamUid s : freed.recorded) accesses.push_back({begin, end, {s, streams.position(s)}});
        ASSERT_TRUE(
            (below(random, 2) ? allocator.free(freed.allocation.block) : allocator.free(freed.allocation.ptr)).ok());
      };
      for (int step = 0; step < 6000 && !HasFatalFailure(); ++step) {
        const auto stream = static_cast<StreamUid>(1 + below(random, 4));
        switch (below(random, 8)) {
          case 0:
          case 1: {
            PinnedAllocation a;
            const Status status = allocator.allocate(1 + below(random, below(random, 4) ? 4096 : 512 * KiB), a);
            if (!status.ok()) {
              ASSERT_EQ(status.code(), StatusCode::out_of_memory);
              break;
            }
            check_complete(address(a), a.bytes);
            for (const Live& other : live) {
              ASSERT_TRUE(address(other.allocation) >= address(a) + a.bytes ||
                          address(a) >= address(other.allocation) + other.allocation.bytes);
            }
            live.push_back({a, {}, {}});
            break;
          }
          case 2:
          case 3:
            if (!live.empty()) free_one(below(random, live.size()));
            break;
          case 4:
          case 5: {
            if (live.empty()) break;
            Live& l = live[below(random, live.size())];
            const void* inside = at(l.allocation.ptr, below(random, l.allocation.bytes));
            ASSERT_EQ(allocator.find(inside).block, l.allocation.block);
            if (below(random, 3) == 0) {
              ASSERT_TRUE(allocator.record_stream(inside, stream).ok());
              l.recorded.push_back(stream);
            } else {
              const Position copy = streams.enqueue(stream);
              ASSERT_TRUE(allocator.record_use(inside, copy).ok());
              l.copies.push_back(copy);
            }
            break;
          }
          case 6: streams.step(stream); break;
          default:
            streams.enqueue(stream);
            if (below(random, 4) == 0) streams.finish(stream);
            if (below(random, 4) == 0) streams.learn(stream);
            if (below(random, 40) == 0) {
              ASSERT_TRUE(allocator.empty_cache().ok());
            }
            break;
        }
        if (step % 100 == 0) {
          std::int64_t bytes = 0;
          for (const Live& l : live) bytes += static_cast<std::int64_t>(l.allocation.bytes);
          const PinnedStatistics s = allocator.statistics();
          ASSERT_EQ(s.live.current, static_cast<std::int64_t>(live.size()));
          ASSERT_EQ(s.live_bytes.current, bytes);
          ASSERT_GE(s.active_bytes.current, bytes);
          ASSERT_EQ(s.allocated_bytes.current, static_cast<std::int64_t>(source.used()));
          std::erase_if(accesses, [&](const Access& a) { return streams.really_complete(a.position); });
        }
      }
      while (!live.empty() && !HasFatalFailure()) free_one(0);
      streams.finish_all();
      for (StreamUid s = 1; s <= 4; ++s) streams.learn(s);
      ASSERT_TRUE(allocator.empty_cache().ok());
      EXPECT_EQ(source.used(), 0u);
      EXPECT_EQ(streams.outstanding_fences(), 0u);
    }
  }
}

}  // namespace
}  // namespace mojo::memory
