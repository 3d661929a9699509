// Which memory CachingAllocator gives to whom: reuse, recorded streams, order, mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/memory/caching_allocator_fixture.h"

namespace mojo::memory {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

class CachingAllocatorReuse : public CachingAllocatorFixture {};

INSTANTIATE_TEST_SUITE_P(, CachingAllocatorReuse, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Fences" : "Positions"; });

TEST_P(CachingAllocatorReuse, ZeroBytesAreNoAllocation) {
  const Allocation a = get(0, A);
  EXPECT_FALSE(a.ptr);
  EXPECT_EQ(a.block, nullptr);
  EXPECT_TRUE(allocator.free(a.block).ok());
  EXPECT_TRUE(allocator.free(a.ptr).ok());
  EXPECT_EQ(segments.calls(), 0);
}

// M-03
TEST_P(CachingAllocatorReuse, TheOwnerReusesAtOnce) {
  const Allocation a = get_and_use(5 * MiB, A);
  give(a);
  const Allocation b = get(5 * MiB, A);
  EXPECT_EQ(b.ptr, a.ptr);
  EXPECT_EQ(segments.calls(), 1);
}

// M-03
TEST_P(CachingAllocatorReuse, AnotherStreamGetsItOnlyWhenDone) {
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

// M-02: the owner waits for the user just while the block is freed. Others get it only once that wait is over.
TEST_P(CachingAllocatorReuse, AWaitIssuedDuringTheFreeCountsToo) {
  const Allocation a = get_and_use(20 * MiB, A);
  const Position use = streams.enqueue(B);
  ASSERT_TRUE(allocator.record_stream(a.block, B).ok());
  streams.on_question = [this] { streams.wait_stream(A, B); };
  give(a);
  ASSERT_FALSE(streams.on_question);
  ASSERT_TRUE(streams.step(A));
  ASSERT_FALSE(streams.step(A));
  streams.learn(A);
  const Allocation c = get(20 * MiB, C);
  EXPECT_NE(c.ptr, a.ptr) << "still read on B: " << streams.really_complete(use);
}

// M-03
TEST_P(CachingAllocatorReuse, AnotherStreamGetsItWhenOrderedAfter) {
  const Allocation a = get_and_use(20 * MiB, A);
  streams.wait_stream(B, A);
  const Allocation early = get_and_use(20 * MiB, A);
  give(a);  // A's position is now behind what B waited for
  const Allocation b = get(20 * MiB, B);
  EXPECT_NE(b.ptr, a.ptr);
  streams.wait_stream(B, A);
  const Allocation c = get(20 * MiB, B);
  EXPECT_EQ(c.ptr, a.ptr);
  give(early);
  EXPECT_FALSE(streams.really_complete({A, 1})) << "nothing has run";
}

// What moved to B by order alone is B's: A gets it back only after B.
TEST_P(CachingAllocatorReuse, MovedMemoryFollowsItsNewOwner) {
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
TEST_P(CachingAllocatorReuse, RecordedStreamHoldsMemoryUpUntilItIsDone) {
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
TEST_P(CachingAllocatorReuse, WorkQueuedAfterTheFreeHoldsNothingUp) {
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
TEST_P(CachingAllocatorReuse, RecordsByAnyAddressInside) {
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

TEST_P(CachingAllocatorReuse, TheOwnersOwnStreamIsNoNews) {
  const Allocation a = get_and_use(20 * MiB, A);
  ASSERT_TRUE(allocator.record_stream(a.block, A).ok());
  give(a);
  EXPECT_EQ(stat(allocator.statistics().active).current, 0);
  EXPECT_EQ(get(20 * MiB, A).ptr, a.ptr);
  EXPECT_EQ(streams.records, 0);
}

// A use that the owner has waited for already costs nothing; nor does a complete one.
TEST_P(CachingAllocatorReuse, UsesOrderedBeforeTheOwnerAreDropped) {
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
TEST_P(CachingAllocatorReuse, OwnerThatWaitsLaterReuses) {
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
TEST_P(CachingAllocatorReuse, WhatTheOwnerWaitedForIsFreeFromTheWaitOn) {
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
TEST_P(CachingAllocatorReuse, TheUserTakesOverWhatWaitsForIt) {
  const Allocation a = get_and_use(20 * MiB, A);
  streams.enqueue(B);
  ASSERT_TRUE(allocator.record_stream(a.block, B).ok());
  give(a);
  EXPECT_NE(get(20 * MiB, B).ptr, a.ptr) << "not ordered after A";
  streams.wait_stream(B, A);
  EXPECT_EQ(get(20 * MiB, B).ptr, a.ptr);
}

// Being ordered after one of several users is not enough, whichever of them it is.
TEST_P(CachingAllocatorReuse, TheOwnerMustHaveWaitedForEveryUser) {
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

TEST_P(CachingAllocatorReuse, SeveralUsersAllCount) {
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
TEST_P(CachingAllocatorReuse, FreeingNextToAnotherStreamsMemoryTakesNothingFromIt) {
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
TEST_P(CachingAllocatorReuse, TakesAdjacentMemoryOfSeveralOwners) {
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

TEST_P(CachingAllocatorReuse, MistakesAreReportedAndChangeNothing) {
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

TEST_P(CachingAllocatorReuse, FindsTheLiveBlockAroundAnAddress) {
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

// A stream that has completed 20,000 others' short lives leaves neither memory nor records behind.
TEST_P(CachingAllocatorReuse, ThousandsOfStreamsShareTheSameMemory) {
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
