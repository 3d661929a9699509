// How the blocks of a launch are handed out: each once, whatever the workers' number and the blocks' length.
#include "drivers/host/launch.h"
#include "drivers/host/share.h"

#include <gtest/gtest.h>

namespace mojo::host {
namespace {

// Takes all blocks of a launch as a lone worker of many, and says how often it took some; 0 if it would never end.
std::uint64_t takes(std::uint64_t blocks, int workers, std::uint64_t nanoseconds_a_block) {
  LaunchState launch;
  launch.blocks = blocks;
  Share share;
  std::uint64_t count = 0, expected = 0;
  for (std::uint64_t first = 0, last = 0; launch.take(share.wanted(launch.left(), workers), first, last);) {
    EXPECT_EQ(first, expected);
    EXPECT_GT(last, first);
    if (last <= first) return 0;
    expected = last;
    share.took((last - first) * nanoseconds_a_block);
    ++count;
  }
  EXPECT_EQ(expected, blocks);
  EXPECT_EQ(launch.left(), 0U);
  return count;
}

TEST(Share, OneRunnerOfManyWorkersEnds) {
  for (const int workers : {1, 2, 4, 16, 64, 256}) {
    for (const std::uint64_t blocks : {1ULL, 2ULL, 63ULL, 10'000ULL, 1'000'000ULL, 0x7fffffffULL * 65535 * 65535}) {
      for (const std::uint64_t nanoseconds : {0, 1, 100}) {
        if (blocks > 1'000'000 && nanoseconds != 0) continue;
        if (blocks > 1'000'000) {  // too many to take, but the sizes are right all the way
          Share share;
          for (int i = 0; i < 1000; ++i) share.took(0);
          EXPECT_EQ(share.wanted(blocks, workers), Share::largest);
          continue;
        }
        EXPECT_GT(takes(blocks, workers, nanoseconds), 0U) << workers << ' ' << blocks << ' ' << nanoseconds;
      }
    }
  }
}

TEST(Share, AShareIsNeverEmpty) {
  Share share;
  for (int i = 0; i < 200; ++i) {
    for (const std::uint64_t left : {0ULL, 1ULL, 1'000'000'000ULL}) EXPECT_GE(share.wanted(left, 64), 1U);
    share.took(0);
  }
  for (int i = 0; i < 200; ++i) share.took(~std::uint64_t{0});
  EXPECT_EQ(share.wanted(1'000'000, 1), 1U);
}

TEST(Share, FollowsHowLongBlocksTake) {
  // 64 workers, one of which runs: blocks of 100 ns come by the hundred, blocks of a millisecond one by one.
  EXPECT_LT(takes(10'000, 64, 100), 2'000U);
  EXPECT_EQ(takes(1'000, 2, 1'000'000), 1'000U);
}

TEST(LaunchState, WhatAsksForNothingIsGivenABlock) {
  LaunchState launch;
  launch.blocks = 3;
  std::uint64_t first = 9, last = 9;
  EXPECT_TRUE(launch.take(0, first, last));
  EXPECT_EQ(first, 0U);
  EXPECT_EQ(last, 1U);
  EXPECT_TRUE(launch.take(100, first, last));
  EXPECT_EQ(last, 3U);
  EXPECT_FALSE(launch.take(1, first, last));
}

}  // namespace
}  // namespace mojo::host
