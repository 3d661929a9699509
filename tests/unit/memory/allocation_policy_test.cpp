// What a policy changes: how sizes round, which blocks are split and reused, when memory goes back under a limit.
#include <array>

#include "memory/block_pool.h"
#include "unit/memory/caching_allocator_fixture.h"

namespace mojo::memory {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)

struct Policy : public ::testing::Test {
  FakeSegments segments;
  SteppedStreams streams{true};
  std::unique_ptr<CachingAllocator> allocator;

  void use(const AllocationPolicy& policy) {
    allocator = std::make_unique<CachingAllocator>(segments, streams, CachingAllocatorOptions{.policy = policy});
  }
  Allocation get(std::uint64_t bytes) {
    Allocation a;
    const Status status = allocator->allocate(bytes, A, a);
    EXPECT_TRUE(status.ok()) << status.message();
    return a;
  }
  void give(const Allocation& a) { EXPECT_TRUE(allocator->free(a.block).ok()); }
  std::int64_t reserved() const { return allocator->statistics().reserved_bytes.of(StatType::aggregate).current; }
};

TEST_F(Policy, TheDefaultRoundsToBlocks) {
  for (const std::uint64_t bytes : {1 * KiB - 1023, KiB / 2, KiB / 2 + 1, 3 * MiB + 1, 777 * MiB + 3}) {
    EXPECT_EQ(block_size(bytes, {}), block_size(bytes));
  }
}

// The worked example of torch's manual: 1200 with 4 divisions is 1280, between 1024 and 2048 in steps of 256.
TEST_F(Policy, StepsDivideEachPowerOfTwo) {
  AllocationPolicy policy;
  policy.power_of_two_steps.fill(4);
  EXPECT_EQ(block_size(1200 * KiB, policy), 1280 * KiB);
  EXPECT_EQ(block_size(1280 * KiB, policy), 1280 * KiB);
  EXPECT_EQ(block_size(1281 * KiB, policy), 1536 * KiB);
  EXPECT_EQ(block_size(1793 * KiB, policy), 2048 * KiB);
  EXPECT_EQ(block_size(2 * MiB, policy), 2 * MiB);
  EXPECT_EQ(block_size(1500, policy), 1536u) << "too small for steps";
  EXPECT_EQ(block_size(5 * KiB, policy), 5 * KiB);
  EXPECT_EQ(block_size(5 * KiB + 1, policy), 6 * KiB);
}

TEST_F(Policy, EachIntervalHasItsSteps) {
  AllocationPolicy policy;
  policy.power_of_two_steps[1] = 2;    // from 2 MiB
  policy.power_of_two_steps[15] = 16;  // from 32 GiB, and whatever is beyond
  EXPECT_EQ(block_size(2 * MiB - 1, policy), 2 * MiB);
  EXPECT_EQ(block_size(2 * MiB - 1000, policy), 2 * MiB - 512);
  EXPECT_EQ(block_size(2 * MiB + 1, policy), 3 * MiB);
  EXPECT_EQ(block_size(4 * MiB + 1, policy), 4 * MiB + 512);
  EXPECT_EQ(block_size(64 * KiB * MiB + 1, policy), 68 * KiB * MiB);
}

TEST_F(Policy, ALargeBlockStaysWhole) {
  AllocationPolicy policy;
  policy.max_split_bytes = 31 * MiB;  // becomes 32
  policy.max_non_split_rounding = 4 * MiB;
  use(policy);
  EXPECT_EQ(allocator->statistics().max_split_size, static_cast<std::int64_t>(32 * MiB));
  const Allocation large = get(40 * MiB);
  give(large);
  EXPECT_EQ(allocator->statistics().oversize_segments.current, 1);
  EXPECT_EQ(allocator->statistics().oversize_allocations.current, 0);

  give(get(30 * MiB));  // not a part of the large block
  EXPECT_EQ(reserved(), static_cast<std::int64_t>(70 * MiB));
  const Allocation again = get(36 * MiB);
  EXPECT_EQ(again.ptr, large.ptr);
  EXPECT_EQ(again.bytes, 40 * MiB) << "whole";
  EXPECT_EQ(allocator->statistics().oversize_allocations.current, 1);
  give(again);
  const Allocation smaller = get(35 * MiB);  // more than 4 MiB smaller
  EXPECT_NE(smaller.ptr, large.ptr);
  give(smaller);
  ASSERT_TRUE(allocator->empty_cache().ok());
  EXPECT_EQ(reserved(), 0);
  EXPECT_EQ(allocator->statistics().oversize_segments.current, 0);
}

// Nor for several streams, when parts of it would do.
TEST_F(Policy, ALargeBlockStaysWholeForSeveralStreams) {
  AllocationPolicy policy;
  policy.max_split_bytes = 32 * MiB;
  use(policy);
  give(get(MiB));
  Allocation other;
  ASSERT_TRUE(allocator->allocate(9 * MiB, B, other).ok());
  const Allocation large = get(100 * MiB);
  give(large);
  std::vector<Allocation> parts;
  for (int i = 0; i < 6; ++i) {
    parts.push_back(get(9 * MiB));
    EXPECT_FALSE(parts.back().ptr >= large.ptr && parts.back().ptr < large.ptr + 100 * MiB) << i;
  }
  EXPECT_EQ(get(100 * MiB).ptr, large.ptr);
  EXPECT_EQ(allocator->statistics().oversize_segments.current, 1);
}

// What is just below the bound comes in a segment that rounding may take beyond it: it must not be lost to reuse.
TEST_F(Policy, NoSegmentIsLostBetweenTheBounds) {
  for (const std::uint64_t bound : {1 * MiB, 20 * MiB, 21 * MiB, 31 * MiB + 1}) {
    AllocationPolicy policy;
    policy.max_split_bytes = bound;
    use(policy);
    for (const std::uint64_t bytes : {MiB + 1, 9 * MiB, 20 * MiB, 21 * MiB - 512, 21 * MiB, 30 * MiB + 512, 32 * MiB}) {
      const Allocation first = get(bytes);
      give(first);
      const Allocation second = get(bytes);
      EXPECT_EQ(second.ptr, first.ptr) << bytes << " with " << bound;
      give(second);
      ASSERT_TRUE(allocator->empty_cache().ok());
    }
  }
}

TEST_F(Policy, UnusedMemoryGoesBackPastTheThreshold) {
  AllocationPolicy policy;
  policy.garbage_collection_threshold = 0.5;
  use(policy);
  allocator->set_limit(100 * MiB);
  give(get(30 * MiB));
  const Allocation kept = get(12 * MiB);  // 42 of 100: a part of the first block
  give(get(20 * MiB));
  EXPECT_EQ(reserved(), static_cast<std::int64_t>(50 * MiB));
  const Allocation third = get(24 * MiB);  // 74: the free 20 go back first, the 30 are in use
  EXPECT_EQ(reserved(), static_cast<std::int64_t>(54 * MiB));
  EXPECT_EQ(allocator->statistics().num_alloc_retries, 0);
  give(third);
  give(kept);
}

TEST_F(Policy, WithoutALimitThereIsNoThreshold) {
  AllocationPolicy policy;
  policy.garbage_collection_threshold = 0.1;
  use(policy);
  give(get(30 * MiB));
  give(get(60 * MiB));
  EXPECT_EQ(reserved(), static_cast<std::int64_t>(90 * MiB));
}

}  // namespace
}  // namespace mojo::memory
