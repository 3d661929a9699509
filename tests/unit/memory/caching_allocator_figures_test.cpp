// What CachingAllocator reserves, returns and reports: sizes, limits, out of memory, statistics, snapshot.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "unit/memory/caching_allocator_fixture.h"

namespace mojo::memory {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using ::testing::HasSubstr;

class CachingAllocatorFigures : public CachingAllocatorFixture {};

INSTANTIATE_TEST_SUITE_P(, CachingAllocatorFigures, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Fences" : "Positions"; });

// M-06: sizes and segments as CUDA's allocator has them.
TEST_P(CachingAllocatorFigures, RoundsAndReservesAsCudaDoes) {
  struct Case {
    std::uint64_t bytes, block, segment;
  };
  for (const Case c : {Case{1, 512, 2 * MiB}, Case{512, 512, 2 * MiB}, Case{513, 1024, 2 * MiB},
                       Case{MiB, MiB, 2 * MiB}, Case{MiB + 1, MiB + 512, 20 * MiB},
                       Case{10 * MiB - 1, 10 * MiB, 10 * MiB}, Case{10 * MiB - 512, 10 * MiB - 512, 20 * MiB},
                       Case{10 * MiB, 10 * MiB, 10 * MiB}, Case{10 * MiB + 1, 10 * MiB + 512, 12 * MiB},
                       Case{11 * MiB + 1, 12 * MiB, 12 * MiB}, Case{20 * MiB, 20 * MiB, 20 * MiB}}) {
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

// M-03: what one stream has freed and not finished with is all that the others cannot have.
TEST_P(CachingAllocatorFigures, ManyStreamsShareSegments) {
  for (StreamUid s = 1; s <= 500; ++s) {
    give(get_and_use(512, s));
    give(get_and_use(MiB + 512, s + 1000));
  }
  const DeviceStatistics busy = allocator.statistics();
  // A first segment of each kind is the first stream's; then each stream's bytes, in segments of the usual sizes.
  EXPECT_LE(stat(busy.reserved_bytes).current, static_cast<std::int64_t>(2 * 2 * MiB + (500 / 19 + 2) * 20 * MiB));
  streams.finish_all();
  for (StreamUid s = 1; s <= 500; ++s) {
    streams.learn(s);
    streams.learn(s + 1000);
  }
  const std::int64_t before = stat(busy.reserved_bytes).current;
  give(get(20 * MiB, 7));  // what lay between other streams' pieces is whole again
  EXPECT_EQ(stat(allocator.statistics().reserved_bytes).current, before);
  ASSERT_TRUE(allocator.empty_cache().ok());
  EXPECT_EQ(stat(allocator.statistics().reserved_bytes).current, 0);
}

// M-07: less than a segment is left, and enough.
TEST_P(CachingAllocatorFigures, WhatFitsIsFound) {
  segments.capacity = 64 * MiB;
  const Allocation large = get(50 * MiB, A);
  const Allocation small = get(5 * MiB, A);  // a segment would be of 20 MiB
  const Allocation least = get(100, A);
  EXPECT_LE(stat(allocator.statistics().reserved_bytes).current, static_cast<std::int64_t>(64 * MiB));
  EXPECT_EQ(allocator.statistics().num_ooms, 0);
  for (const Allocation& a : {large, small, least}) give(a);
  Allocation none;
  EXPECT_EQ(allocator.allocate(65 * MiB, A, none).code(), StatusCode::out_of_memory);
  give(get(64 * MiB, A));
}

// However far the bounded look of each allocation has got, a report knows all that is complete.
TEST_P(CachingAllocatorFigures, FiguresKnowEveryCompleteUse) {
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

// M-06: what is free and complete goes back, what queued work may use stays. Nothing waits.
TEST_P(CachingAllocatorFigures, EmptyCacheWhileStreamsAreBusy) {
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
TEST_P(CachingAllocatorFigures, FullDeviceReleasesTheCacheAndRetriesOnce) {
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
TEST_P(CachingAllocatorFigures, FullDeviceWaitsForBusyMemory) {
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
TEST_P(CachingAllocatorFigures, DoesNotWaitWhereItCannotHelp) {
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
TEST_P(CachingAllocatorFigures, OutOfMemorySaysTheFiguresAndHarmsNothing) {
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

TEST_P(CachingAllocatorFigures, AbsurdSizesAreOutOfMemory) {
  for (const std::uint64_t bytes : {std::uint64_t{1} << 62, (std::uint64_t{1} << 62) + 1, ~std::uint64_t{0}}) {
    segments.capacity = 64 * MiB;
    Allocation out;
    EXPECT_EQ(allocator.allocate(bytes, A, out).code(), StatusCode::out_of_memory);
  }
  EXPECT_EQ(allocator.statistics().num_ooms, 3);
}

TEST_P(CachingAllocatorFigures, OtherFailuresOfTheDeviceAreReturnedAsTheyAre) {
  segments.fail_at = 1;
  segments.failure = StatusCode::device_lost;
  Allocation out;
  EXPECT_EQ(allocator.allocate(1, A, out).code(), StatusCode::device_lost);
  EXPECT_EQ(segments.calls(), 1);
  EXPECT_EQ(allocator.statistics().num_alloc_retries, 0);
}

// M-08
TEST_P(CachingAllocatorFigures, TheLimitBoundsWhatIsReserved) {
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
TEST_P(CachingAllocatorFigures, SnapshotCoversEverySegmentWithoutGaps) {
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
TEST_P(CachingAllocatorFigures, PeaksAndSumsAreResetByThemselves) {
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

TEST_P(CachingAllocatorFigures, DestructionReturnsEverything) {
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

}  // namespace
}  // namespace mojo::memory
