// CachingAllocator, rule by rule, on streams that the test steps by hand.
#include "memory/caching_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "unit/memory/fakes.h"

namespace mojo::memory {
namespace {

using test::FakeSegments;
using test::SteppedStreams;
using ::testing::HasSubstr;

constexpr std::uint64_t KiB = 1024, MiB = 1024 * KiB;
constexpr StreamUid A = 1, B = 2, C = 3;

class CachingAllocatorTest : public ::testing::TestWithParam<bool> {
 protected:
  Allocation get(std::uint64_t bytes, StreamUid stream) {
    Allocation a;
    const Status status = allocator.allocate(bytes, stream, a);
    EXPECT_TRUE(status.ok()) << status.message();
    return a;
  }
  void give(Allocation a) { EXPECT_TRUE(allocator.free(a.block).ok()); }
  // What a program does with memory: work on the stream.
  Allocation get_and_use(std::uint64_t bytes, StreamUid stream) {
    const Allocation a = get(bytes, stream);
    streams.enqueue(stream);
    return a;
  }
  const Stat stat(const StatArray& array) { return array.of(StatType::aggregate); }

  FakeSegments segments;
  SteppedStreams streams{GetParam()};
  CachingAllocator allocator{segments, streams, {.device_name = "mojo:0"}};
};

INSTANTIATE_TEST_SUITE_P(, CachingAllocatorTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Fences" : "Positions"; });

TEST_P(CachingAllocatorTest, ZeroBytesAreNoAllocation) {
  const Allocation a = get(0, A);
  EXPECT_FALSE(a.ptr);
  EXPECT_EQ(a.block, nullptr);
  EXPECT_TRUE(allocator.free(a.block).ok());
  EXPECT_TRUE(allocator.free(a.ptr).ok());
  EXPECT_EQ(segments.calls(), 0);
}

// M-06: sizes and segments as CUDA's allocator has them.
TEST_P(CachingAllocatorTest, RoundsAndReservesAsCudaDoes) {
  struct Case {
    std::uint64_t bytes, block, segment;
  };
  for (const Case c : {Case{1, 512, 2 * MiB}, Case{512, 512, 2 * MiB}, Case{513, 1024, 2 * MiB},
                       Case{MiB, MiB, 2 * MiB}, Case{MiB + 1, MiB + 512, 20 * MiB}, Case{10 * MiB - 1, 10 * MiB, 10 * MiB},
                       Case{10 * MiB - 512, 10 * MiB - 512, 20 * MiB}, Case{10 * MiB, 10 * MiB, 10 * MiB},
                       Case{10 * MiB + 1, 10 * MiB + 512, 12 * MiB}, Case{11 * MiB + 1, 12 * MiB, 12 * MiB}, Case{20 * MiB, 20 * MiB, 20 * MiB}}) {
    FakeSegments source;
    CachingAllocator fresh(source, streams);
    Allocation a;
    ASSERT_TRUE(fresh.allocate(c.bytes, A, a).ok());
    EXPECT_EQ(a.bytes, c.block) << c.bytes;
    EXPECT_EQ(source.used(), c.segment) << c.bytes;
    const DeviceStatistics s = fresh.statistics();
    EXPECT_EQ(stat(s.allocated_bytes).current, static_cast<std::int64_t>(c.block));
    EXPECT_EQ(stat(s.requested_bytes).current, static_cast<std::int64_t>(c.bytes));
    EXPECT_EQ(stat(s.reserved_bytes).current, static_cast<std::int64_t>(c.segment));
    const StatType pool = c.bytes <= MiB ? StatType::small_pool : StatType::large_pool;
    EXPECT_EQ(s.allocated_bytes.of(pool).current, static_cast<std::int64_t>(c.block));
    EXPECT_EQ(s.segment.of(pool).current, 1);
    EXPECT_EQ(stat(s.inactive_split).current, c.block == c.segment ? 0 : 1);
  }
}

// M-03
TEST_P(CachingAllocatorTest, TheOwnerReusesAtOnce) {
  const Allocation a = get_and_use(5 * MiB, A);
  give(a);
  const Allocation b = get(5 * MiB, A);
  EXPECT_EQ(b.ptr, a.ptr);
  EXPECT_EQ(segments.calls(), 1);
}

// M-03
TEST_P(CachingAllocatorTest, AnotherStreamGetsItOnlyWhenDone) {
  const Allocation a = get_and_use(20 * MiB, A);
  give(a);
  const Allocation b = get(20 * MiB, B);
  EXPECT_NE(b.ptr, a.ptr);
  streams.finish(A);
  streams.learn(A);
  const Allocation c = get(20 * MiB, B);
  EXPECT_EQ(c.ptr, a.ptr);
  EXPECT_EQ(segments.calls(), 2);
}

// M-03
TEST_P(CachingAllocatorTest, AnotherStreamGetsItWhenOrderedAfter) {
  const Allocation a = get_and_use(20 * MiB, A);
  streams.wait_stream(B, A);
  const Allocation early = get_and_use(20 * MiB, A);
  give(a);      // A's position is now behind what B waited for
  const Allocation b = get(20 * MiB, B);
  EXPECT_NE(b.ptr, a.ptr);
  streams.wait_stream(B, A);
  const Allocation c = get(20 * MiB, B);
  EXPECT_EQ(c.ptr, a.ptr);
  give(early);
  EXPECT_FALSE(streams.really_complete({A, 1})) << "nothing has run";
}

// What moved to B by order alone is B's: A gets it back only after B.
TEST_P(CachingAllocatorTest, MovedMemoryFollowsItsNewOwner) {
  const Allocation a = get_and_use(20 * MiB, A);
  give(a);
  streams.wait_stream(B, A);
  const Allocation b = get_and_use(20 * MiB, B);
  ASSERT_EQ(b.ptr, a.ptr);
  give(b);
  EXPECT_NE(get(20 * MiB, A).ptr, a.ptr);
  streams.wait_stream(C, B);  // C comes after B, and so after A's use
  EXPECT_EQ(get(20 * MiB, C).ptr, a.ptr);
}

// M-02, M-04
TEST_P(CachingAllocatorTest, RecordedStreamHoldsMemoryUpUntilItIsDone) {
  const Allocation a = get_and_use(20 * MiB, A);
  streams.enqueue(B);
  ASSERT_TRUE(allocator.record_stream(a.block, B).ok());
  streams.enqueue(B);
  give(a);
  EXPECT_EQ(stat(allocator.statistics().allocated_bytes).current, 0);
  EXPECT_EQ(stat(allocator.statistics().active_bytes).current, static_cast<std::int64_t>(20 * MiB));
  EXPECT_EQ(allocator.snapshot().at(0).blocks.at(0).state, BlockState::active_pending_free);
  EXPECT_NE(get(20 * MiB, A).ptr, a.ptr);
  streams.finish(A);
  streams.step(B);
  EXPECT_NE(get(20 * MiB, A).ptr, a.ptr) << "B has done one of two";
  streams.step(B);
  EXPECT_EQ(get(20 * MiB, A).ptr, a.ptr);
  EXPECT_EQ(streams.position(A), 1u) << "the owner was made to wait";
}

// M-02: what counts is what is queued when the memory is freed.
TEST_P(CachingAllocatorTest, WorkQueuedAfterTheFreeHoldsNothingUp) {
  const Allocation a = get_and_use(20 * MiB, A);
  streams.enqueue(B);
  ASSERT_TRUE(allocator.record_stream(a.block, B).ok());
  give(a);
  streams.enqueue(B);
  streams.step(B);
  streams.finish(A);
  EXPECT_EQ(get(20 * MiB, A).ptr, a.ptr);
}

// M-02: views and slices.
TEST_P(CachingAllocatorTest, RecordsByAnyAddressInside) {
  const Allocation small = get_and_use(700, A);
  const Allocation large = get_and_use(3 * MiB, A);
  streams.enqueue(B);
  EXPECT_TRUE(allocator.record_stream(small.ptr + 1023, B).ok());
  EXPECT_TRUE(allocator.record_stream(large.ptr + 2 * MiB, B).ok());
  give(small);
  give(large);
  EXPECT_EQ(stat(allocator.statistics().active).current, 2);
  streams.finish(B);
  streams.learn(B);
  EXPECT_EQ(get(700, A).ptr, small.ptr);
  EXPECT_EQ(get(3 * MiB, A).ptr, large.ptr);
}

TEST_P(CachingAllocatorTest, TheOwnersOwnStreamIsNoNews) {
  const Allocation a = get_and_use(20 * MiB, A);
  ASSERT_TRUE(allocator.record_stream(a.block, A).ok());
  give(a);
  EXPECT_EQ(stat(allocator.statistics().active).current, 0);
  EXPECT_EQ(get(20 * MiB, A).ptr, a.ptr);
  EXPECT_EQ(streams.records, 0);
}

// A use that the owner has waited for already costs nothing; nor does a complete one.
TEST_P(CachingAllocatorTest, UsesOrderedBeforeTheOwnerAreDropped) {
  const Allocation a = get_and_use(20 * MiB, A);
  streams.enqueue(B);
  streams.enqueue(C);
  ASSERT_TRUE(allocator.record_stream(a.block, B).ok());
  ASSERT_TRUE(allocator.record_stream(a.block, C).ok());
  streams.wait_stream(A, B);
  streams.finish(C);
  streams.learn(C);
  give(a);
  EXPECT_EQ(stat(allocator.statistics().active).current, 0);
  EXPECT_EQ(streams.records, 0);
  EXPECT_EQ(get(20 * MiB, A).ptr, a.ptr);
}

// The owner waits for the user after the free: then it may have the memory again, and whoever comes after that too.
TEST_P(CachingAllocatorTest, OwnerThatWaitsLaterReuses) {
  const Allocation a = get_and_use(20 * MiB, A);
  streams.enqueue(B);
  ASSERT_TRUE(allocator.record_stream(a.block, B).ok());
  give(a);
  const auto before_the_wait = streams.record(A);
  streams.wait_stream(A, B);
  const Allocation again = get(20 * MiB, A);
  EXPECT_EQ(again.ptr, a.ptr);
  give(again);
  // C comes after A's free, but not after A's wait for B.
  streams.wait_for(C, before_the_wait);
  EXPECT_NE(get(20 * MiB, C).ptr, a.ptr);
  streams.wait_stream(C, A);
  EXPECT_EQ(get(20 * MiB, C).ptr, a.ptr);
}

// The same for memory that the owner does not take again itself: others get it after the wait, not after the free.
TEST_P(CachingAllocatorTest, WhatTheOwnerWaitedForIsFreeFromTheWaitOn) {
  const Allocation a = get_and_use(20 * MiB, A), b = get_and_use(30 * MiB, A);
  streams.enqueue(B);
  for (const Allocation& x : {a, b}) ASSERT_TRUE(allocator.record_stream(x.block, B).ok());
  give(a);
  give(b);
  const auto before_the_wait = streams.record(A);
  streams.wait_stream(A, B);
  ASSERT_EQ(get(20 * MiB, A).ptr, a.ptr);
  streams.wait_for(C, before_the_wait);
  EXPECT_NE(get(30 * MiB, C).ptr, b.ptr);
  streams.wait_stream(C, A);
  EXPECT_EQ(get(30 * MiB, C).ptr, b.ptr);
}

// The consumer itself may have what waits only for the consumer, once it comes after the owner's work too.
TEST_P(CachingAllocatorTest, TheUserTakesOverWhatWaitsForIt) {
  const Allocation a = get_and_use(20 * MiB, A);
  streams.enqueue(B);
  ASSERT_TRUE(allocator.record_stream(a.block, B).ok());
  give(a);
  EXPECT_NE(get(20 * MiB, B).ptr, a.ptr) << "not ordered after A";
  streams.wait_stream(B, A);
  EXPECT_EQ(get(20 * MiB, B).ptr, a.ptr);
}

// Being ordered after one of several users is not enough, whichever of them it is.
TEST_P(CachingAllocatorTest, TheOwnerMustHaveWaitedForEveryUser) {
  for (const StreamUid waited : {B, C}) {
    const Allocation a = get_and_use(20 * MiB, A);
    streams.enqueue(B);
    streams.enqueue(C);
    ASSERT_TRUE(allocator.record_stream(a.block, B).ok());
    ASSERT_TRUE(allocator.record_stream(a.block, C).ok());
    give(a);
    streams.wait_stream(A, waited);
    EXPECT_NE(get(20 * MiB, A).ptr, a.ptr);
    streams.wait_stream(A, waited == B ? C : B);
    EXPECT_EQ(get(20 * MiB, A).ptr, a.ptr);
  }
}

// However far the bounded look of each allocation has got, a report knows all that is complete.
TEST_P(CachingAllocatorTest, FiguresKnowEveryCompleteUse) {
  std::vector<Allocation> blocks;
  for (StreamUid s = 10; s < 20; ++s) {
    blocks.push_back(get_and_use(5000, A));
    streams.enqueue(s);
    ASSERT_TRUE(allocator.record_stream(blocks.back().block, s).ok());
  }
  for (const Allocation& a : blocks) give(a);
  for (StreamUid s = 10; s < 20; ++s) {
    get(100 * s, A);  // moves on to other streams each time
    streams.finish(s);
    streams.learn(s);
    const auto waiting = static_cast<std::int64_t>(19 - s);
    EXPECT_EQ(stat(allocator.statistics().active).current - stat(allocator.statistics().allocation).current, waiting);
  }
}

TEST_P(CachingAllocatorTest, SeveralUsersAllCount) {
  const Allocation a = get_and_use(20 * MiB, A);
  for (StreamUid s = 10; s < 20; ++s) {
    streams.enqueue(s);
    ASSERT_TRUE(allocator.record_stream(a.block, s).ok());
    ASSERT_TRUE(allocator.record_stream(a.block, s).ok());
  }
  give(a);
  for (StreamUid s = 19; s >= 10; --s) {
    EXPECT_NE(get(20 * MiB, A).ptr, a.ptr);
    streams.finish(s);
  }
  EXPECT_EQ(get(20 * MiB, A).ptr, a.ptr);
}

// Neighbours of one owner coalesce, those of two do not: B's free memory stays at B's disposal.
TEST_P(CachingAllocatorTest, FreeingNextToAnotherStreamsMemoryTakesNothingFromIt) {
  const Allocation a = get_and_use(20 * MiB, A);
  give(a);
  streams.wait_stream(B, A);
  const Allocation b1 = get_and_use(5 * MiB, B);  // cut off A's block
  const Allocation b2 = get_and_use(5 * MiB, B);
  ASSERT_EQ(b1.ptr, a.ptr);
  ASSERT_EQ(b2.ptr, a.ptr + 5 * MiB);
  EXPECT_EQ(get(10 * MiB, A).ptr, a.ptr + 10 * MiB) << "A keeps what B did not take";
  give(b1);
  give(b2);
  EXPECT_EQ(get(10 * MiB, B).ptr, b1.ptr);
}

// A request that fits only across the memory of two owners, for one who comes after both.
TEST_P(CachingAllocatorTest, TakesAdjacentMemoryOfSeveralOwners) {
  const Allocation a = get_and_use(20 * MiB, A);
  give(a);
  streams.wait_stream(B, A);
  const Allocation b = get_and_use(6 * MiB, B);
  ASSERT_EQ(b.ptr, a.ptr);
  give(b);
  EXPECT_EQ(allocator.snapshot().at(0).blocks.size(), 2u);
  streams.wait_stream(C, B);
  const Allocation c = get_and_use(18 * MiB, C);
  EXPECT_EQ(c.ptr, a.ptr);
  EXPECT_EQ(segments.calls(), 1);
  EXPECT_EQ(stat(allocator.statistics().inactive_split_bytes).current, static_cast<std::int64_t>(2 * MiB));
  give(c);
  EXPECT_EQ(allocator.snapshot().at(0).blocks.size(), 2u) << "A's last 2 MiB and C's 18";
  streams.finish_all();
  for (StreamUid s : {A, B, C}) streams.learn(s);
  EXPECT_EQ(get(20 * MiB, B).ptr, a.ptr) << "complete memory is everyone's and coalesces";
  EXPECT_EQ(segments.calls(), 1);
}

TEST_P(CachingAllocatorTest, MistakesAreReportedAndChangeNothing) {
  const Allocation a = get_and_use(MiB, A);
  EXPECT_EQ(allocator.free(a.ptr + 1).code(), StatusCode::invalid_argument);
  EXPECT_EQ(allocator.free(DevicePtr{12345}).code(), StatusCode::invalid_argument);
  EXPECT_EQ(allocator.record_stream(DevicePtr{12345}, B).code(), StatusCode::invalid_argument);
  EXPECT_EQ(allocator.record_stream(a.block, 0).code(), StatusCode::invalid_argument);
  Allocation none;
  EXPECT_EQ(allocator.allocate(1, 0, none).code(), StatusCode::invalid_argument);
  EXPECT_EQ(stat(allocator.statistics().allocation).current, 1);
  give(a);
  EXPECT_EQ(allocator.free(a.block).code(), StatusCode::invalid_argument);
  EXPECT_EQ(allocator.free(a.ptr).code(), StatusCode::invalid_argument);
  EXPECT_EQ(allocator.record_stream(a.block, B).code(), StatusCode::invalid_argument);
  EXPECT_THAT(allocator.free(a.ptr).message(), HasSubstr("not the address of a live allocation"));
  streams.finish_all();
  streams.learn(A);
  ASSERT_TRUE(allocator.empty_cache().ok());
  EXPECT_EQ(segments.live(), 0u);
  EXPECT_EQ(allocator.free(a.block).code(), StatusCode::invalid_argument) << "its segment is gone";
  EXPECT_EQ(stat(allocator.statistics().allocation).current, 0);
}

TEST_P(CachingAllocatorTest, FindsTheLiveBlockAroundAnAddress) {
  const Allocation a = get(600, A), b = get(40 * MiB, A);
  for (const Allocation& x : {a, b}) {
    EXPECT_EQ(allocator.find(x.ptr).block, x.block);
    EXPECT_EQ(allocator.find(x.ptr + (x.bytes - 1)).block, x.block);
    EXPECT_NE(allocator.find(x.ptr + x.bytes).block, x.block);
    EXPECT_EQ(CachingAllocator::allocation_of(*x.block).ptr, x.ptr);
    EXPECT_EQ(CachingAllocator::address_of(x.block), x.ptr);
    EXPECT_EQ(&CachingAllocator::owner_of(x.block), &allocator);
  }
  give(a);
  EXPECT_EQ(allocator.find(a.ptr).block, nullptr);
}

// M-06: what is free and complete goes back, what queued work may use stays. Nothing waits.
TEST_P(CachingAllocatorTest, EmptyCacheWhileStreamsAreBusy) {
  const Allocation idle = get_and_use(20 * MiB, A);
  streams.finish(A);
  streams.learn(A);
  const Allocation busy = get_and_use(30 * MiB, B);
  const Allocation used = get_and_use(40 * MiB, B);
  const Allocation live = get_and_use(50 * MiB, B);
  streams.enqueue(C);
  ASSERT_TRUE(allocator.record_stream(used.block, C).ok());
  give(idle);
  give(busy);
  give(used);
  segments.on_free = [&](std::uint64_t address, std::uint64_t) { EXPECT_EQ(address, idle.ptr.address); };
  ASSERT_TRUE(allocator.empty_cache().ok());
  EXPECT_EQ(segments.used(), 120 * MiB);
  EXPECT_EQ(stat(allocator.statistics().reserved_bytes).current, static_cast<std::int64_t>(120 * MiB));
  EXPECT_EQ(streams.waits, 0);
  segments.on_free = nullptr;
  streams.finish_all();
  for (StreamUid s : {B, C}) streams.learn(s);
  ASSERT_TRUE(allocator.empty_cache().ok());
  EXPECT_EQ(segments.used(), 50 * MiB);
  give(live);
  ASSERT_TRUE(allocator.empty_cache().ok());
  EXPECT_EQ(segments.live(), 0u);
}

// M-07
TEST_P(CachingAllocatorTest, FullDeviceReleasesTheCacheAndRetriesOnce) {
  segments.capacity = 64 * MiB;
  const Allocation a = get_and_use(40 * MiB, A);
  give(a);
  streams.finish(A);
  streams.learn(A);
  const Allocation b = get(60 * MiB, A);
  EXPECT_EQ(b.bytes, 60 * MiB);
  EXPECT_EQ(segments.live(), 1u);
  const DeviceStatistics s = allocator.statistics();
  EXPECT_EQ(s.num_alloc_retries, 1);
  EXPECT_EQ(s.num_ooms, 0);
  EXPECT_EQ(s.num_sync_all_streams, 0);
  EXPECT_EQ(s.num_device_alloc, 2);
  EXPECT_EQ(s.num_device_free, 1);
}

// M-07: it waits rather than fail, for all that keeps memory from being used.
TEST_P(CachingAllocatorTest, FullDeviceWaitsForBusyMemory) {
  segments.capacity = 64 * MiB;
  const Allocation a = get_and_use(30 * MiB, A);
  const Allocation b = get_and_use(30 * MiB, A);
  streams.enqueue(B);
  ASSERT_TRUE(allocator.record_stream(b.block, B).ok());
  give(a);
  give(b);
  segments.on_free = [&](std::uint64_t, std::uint64_t) {
    EXPECT_TRUE(streams.really_complete({A, 2}));
    EXPECT_TRUE(streams.really_complete({B, 1}));
  };
  get(60 * MiB, C);
  const DeviceStatistics s = allocator.statistics();
  EXPECT_EQ(s.num_alloc_retries, 1);
  EXPECT_EQ(s.num_sync_all_streams, 1);
  EXPECT_GT(streams.waits, 0);
}

// M-07: waiting is for what could help. A stream that this very thread holds up would never finish.
TEST_P(CachingAllocatorTest, DoesNotWaitWhereItCannotHelp) {
  segments.capacity = 64 * MiB;
  const Allocation live = get_and_use(40 * MiB, A);
  give(get_and_use(20 * MiB, A));
  Allocation out;
  const Status status = allocator.allocate(30 * MiB, B, out);
  EXPECT_EQ(status.code(), StatusCode::out_of_memory);
  EXPECT_EQ(streams.waits, 0);
  give(live);
}

// M-07
TEST_P(CachingAllocatorTest, OutOfMemorySaysTheFiguresAndHarmsNothing) {
  segments.capacity = 64 * MiB;
  const Allocation a = get_and_use(40 * MiB, A);
  get(3 * MiB, A);
  Allocation out;
  const Status status = allocator.allocate(100 * MiB, A, out);
  EXPECT_EQ(status.code(), StatusCode::out_of_memory);
  EXPECT_EQ(out.block, nullptr);
  for (const char* part : {"mojo:0 out of memory", "Tried to allocate 100.00 MiB", "total capacity of 64.00 MiB",
                           "4.00 MiB is free", "43.00 MiB is allocated", "17.00 MiB is reserved but unallocated"}) {
    EXPECT_THAT(status.message(), HasSubstr(part));
  }
  EXPECT_EQ(allocator.statistics().num_ooms, 1);
  EXPECT_EQ(allocator.statistics().num_alloc_retries, 1);
  give(a);
  EXPECT_EQ(get(40 * MiB, A).ptr, a.ptr) << "the next one that fits succeeds";
}

TEST_P(CachingAllocatorTest, AbsurdSizesAreOutOfMemory) {
  for (const std::uint64_t bytes : {std::uint64_t{1} << 62, (std::uint64_t{1} << 62) + 1, ~std::uint64_t{0}}) {
    segments.capacity = 64 * MiB;
    Allocation out;
    EXPECT_EQ(allocator.allocate(bytes, A, out).code(), StatusCode::out_of_memory);
  }
  EXPECT_EQ(allocator.statistics().num_ooms, 3);
}

TEST_P(CachingAllocatorTest, OtherFailuresOfTheDeviceAreReturnedAsTheyAre) {
  segments.fail_at = 1;
  segments.failure = StatusCode::device_lost;
  Allocation out;
  EXPECT_EQ(allocator.allocate(1, A, out).code(), StatusCode::device_lost);
  EXPECT_EQ(segments.calls(), 1);
  EXPECT_EQ(allocator.statistics().num_alloc_retries, 0);
}

// M-08
TEST_P(CachingAllocatorTest, TheLimitBoundsWhatIsReserved) {
  allocator.set_limit(40 * MiB);
  EXPECT_EQ(allocator.limit(), 40 * MiB);
  const Allocation a = get_and_use(20 * MiB, A);
  Allocation out;
  const Status status = allocator.allocate(22 * MiB, A, out);
  EXPECT_EQ(status.code(), StatusCode::out_of_memory);
  EXPECT_THAT(status.message(), HasSubstr("allowed 40.00 MiB"));
  EXPECT_EQ(segments.calls(), 1);
  give(a);
  streams.finish(A);
  streams.learn(A);
  EXPECT_TRUE(allocator.allocate(22 * MiB, A, out).ok()) << "the cache makes way";
  allocator.set_limit(0);
  get(60 * MiB, A);
}

// M-08
TEST_P(CachingAllocatorTest, SnapshotCoversEverySegmentWithoutGaps) {
  const Allocation a = get_and_use(100, A), b = get_and_use(600, A), c = get_and_use(30 * MiB, B);
  streams.enqueue(C);
  ASSERT_TRUE(allocator.record_stream(b.block, C).ok());
  give(b);
  const auto snapshot = allocator.snapshot();
  ASSERT_EQ(snapshot.size(), 2u);
  EXPECT_EQ(snapshot[0].total_size, 2 * MiB);
  EXPECT_FALSE(snapshot[0].is_large);
  EXPECT_EQ(snapshot[0].stream, A);
  EXPECT_EQ(snapshot[0].requested_size, 700u);
  EXPECT_EQ(snapshot[0].allocated_size, 512u);
  EXPECT_EQ(snapshot[0].active_size, 512u + 1024u);
  ASSERT_EQ(snapshot[0].blocks.size(), 3u);
  EXPECT_EQ(snapshot[0].blocks[0].state, BlockState::allocated);
  EXPECT_EQ(snapshot[0].blocks[0].address, a.ptr);
  EXPECT_EQ(snapshot[0].blocks[0].requested, 100u);
  EXPECT_EQ(snapshot[0].blocks[1].state, BlockState::active_pending_free);
  EXPECT_EQ(snapshot[0].blocks[2].state, BlockState::inactive);
  EXPECT_TRUE(snapshot[1].is_large);
  EXPECT_EQ(snapshot[1].stream, B);
  EXPECT_EQ(snapshot[1].address, c.ptr);
}

// M-06
TEST_P(CachingAllocatorTest, PeaksAndSumsAreResetByThemselves) {
  const Allocation a = get_and_use(3 * MiB, A), b = get_and_use(4 * MiB, A);
  give(a);
  DeviceStatistics s = allocator.statistics();
  EXPECT_EQ(stat(s.allocated_bytes), (Stat{4 * MiB, 7 * MiB, 7 * MiB, 3 * MiB}));
  EXPECT_EQ(stat(s.allocation), (Stat{1, 2, 2, 1}));
  allocator.reset_peak_statistics();
  s = allocator.statistics();
  EXPECT_EQ(stat(s.allocated_bytes), (Stat{4 * MiB, 4 * MiB, 7 * MiB, 3 * MiB}));
  allocator.reset_accumulated_statistics();
  give(b);
  s = allocator.statistics();
  EXPECT_EQ(stat(s.allocated_bytes), (Stat{0, 4 * MiB, 0, 4 * MiB}));
  EXPECT_EQ(s.max_split_size, -1);
}

// A stream that has completed 20,000 others' short lives leaves neither memory nor records behind.
TEST_P(CachingAllocatorTest, ThousandsOfStreamsShareTheSameMemory) {
  for (StreamUid s = 1; s <= 20000; ++s) {
    const Allocation a = get_and_use(KiB, s);
    streams.enqueue(s + 1);
    ASSERT_TRUE(allocator.record_stream(a.block, s + 1).ok());
    give(a);
    streams.finish(s);
    streams.finish(s + 1);
    streams.learn(s);
    streams.learn(s + 1);
  }
  EXPECT_EQ(segments.calls(), 1);
}

TEST_P(CachingAllocatorTest, DestructionReturnsEverything) {
  FakeSegments source;
  {
    CachingAllocator other(source, streams);
    Allocation a;
    ASSERT_TRUE(other.allocate(5, A, a).ok());
    ASSERT_TRUE(other.allocate(50 * MiB, A, a).ok());
    streams.enqueue(B);
    ASSERT_TRUE(other.record_stream(a.block, B).ok());
    ASSERT_TRUE(other.free(a.block).ok());
    EXPECT_EQ(source.live(), 2u);
  }
  EXPECT_EQ(source.live(), 0u);
}

// With fences: one for each position, however many blocks wait for it, and all of them returned to their pool.
TEST(CachingAllocatorFences, OneForEachPosition) {
  FakeSegments segments;
  SteppedStreams streams(true);
  CachingAllocator allocator(segments, streams);
  std::vector<Allocation> blocks(50);
  for (Allocation& a : blocks) ASSERT_TRUE(allocator.allocate(5000, A, a).ok());
  streams.enqueue(A);
  streams.enqueue(B);
  for (const Allocation& a : blocks) ASSERT_TRUE(allocator.record_stream(a.block, B).ok());
  for (const Allocation& a : blocks) ASSERT_TRUE(allocator.free(a.block).ok());
  EXPECT_EQ(streams.records, 1);
  EXPECT_EQ(streams.polls, 0) << "free asks the driver nothing";
  streams.finish(B);
  Allocation big;
  ASSERT_TRUE(allocator.allocate(900 * KiB, A, big).ok());
  ASSERT_TRUE(allocator.allocate(900 * KiB, A, big).ok());
  ASSERT_TRUE(allocator.allocate(900 * KiB, A, big).ok());
  EXPECT_EQ(streams.outstanding_fences(), 0u);
  EXPECT_EQ(allocator.statistics().active.of(StatType::aggregate).current, 3);
}

// A fence that cannot be recorded costs reuse, not correctness: the position tells in the end.
TEST(CachingAllocatorFences, DoesWithoutWhereRecordingFails) {
  FakeSegments segments;
  SteppedStreams streams(true);
  CachingAllocator allocator(segments, streams);
  Allocation a, b;
  ASSERT_TRUE(allocator.allocate(20 * MiB, A, a).ok());
  streams.enqueue(B);
  ASSERT_TRUE(allocator.record_stream(a.block, B).ok());
  streams.fail_records = true;
  ASSERT_TRUE(allocator.free(a.block).ok());
  streams.finish(B);
  ASSERT_TRUE(allocator.allocate(20 * MiB, A, b).ok());
  EXPECT_NE(b.ptr, a.ptr);
  streams.learn(B);
  ASSERT_TRUE(allocator.allocate(20 * MiB, A, b).ok());
  EXPECT_EQ(b.ptr, a.ptr);
}

}  // namespace
}  // namespace mojo::memory
