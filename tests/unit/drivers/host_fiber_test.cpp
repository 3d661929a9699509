// Stacks of a block's threads: they run by turns, and do not use up what the system allows a process.
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "drivers/host/fiber.h"

namespace mojo::host {
namespace {

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

// Whether every fiber of the pool runs, in three turns.
bool works(FiberPool& pool, unsigned count) {
  struct State {
    FiberPool& pool;
    std::vector<int> turns;
    bool in_step = true;
  } state{pool, std::vector<int>(count, 0)};
  pool.run(
      count,
      [](void* raw, unsigned index) {
        State& s = *static_cast<State*>(raw);
        for (int turn = 0; turn < 3; ++turn) {
          s.in_step = s.in_step && s.turns[index] == turn;
          ++s.turns[index];
          s.pool.yield();
          for (int other : s.turns) s.in_step = s.in_step && other >= turn + 1;
        }
      },
      &state);
  return state.in_step;
}

#if defined(__SANITIZE_THREAD__)
constexpr unsigned stacks = 16, pools = 4;  // it has a limit of its own, and takes milliseconds for each
#else
constexpr unsigned stacks = 1024, pools = 40;  // as 40 workers have them
#endif

TEST(Fibers, ManyPoolsLeaveTheSystemMappings) {
  const std::size_t before = mappings();
  for (int round = 0; round < 2; ++round) {  // what goes can be had again
    std::vector<std::unique_ptr<FiberPool>> all;
    for (unsigned i = 0; i < pools; ++i) {
      all.push_back(std::make_unique<FiberPool>());
      ASSERT_TRUE(all.back()->reserve(stacks));
    }
    EXPECT_TRUE(works(*all.front(), stacks));
    EXPECT_TRUE(works(*all.back(), stacks));  // without guards
#if !defined(__SANITIZE_THREAD__)
    EXPECT_LT(mappings() - before, 16'384U + 2 * pools + 100);
    EXPECT_GT(mappings() - before, 16'000U);
#endif
  }
#if !defined(__SANITIZE_THREAD__)
  EXPECT_LT(mappings(), before + 100);
#else
  static_cast<void>(before);
#endif
}

// Fibers that have run before go on where more were added behind them.
TEST(Fibers, APoolGrowsBetweenRuns) {
  FiberPool pool;
  for (const unsigned count : {1U, 2U, 3U, 17U, 5U, stacks, 2U}) {
    ASSERT_TRUE(pool.reserve(count));
    EXPECT_TRUE(works(pool, count)) << count;
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
[[gnu::noinline]] int fill_stack(int depth) {
  volatile char frame[1024];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : fill_stack(depth - 1) + frame[0];
}

TEST(FibersDeathTest, RunningOutOfStackMeetsTheGuard) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        FiberPool pool;
        if (!pool.reserve(2)) _exit(0);
        pool.run(
            2, [](void*, unsigned) { static_cast<void>(fill_stack(1000)); }, nullptr);
        _exit(0);
      },
      testing::KilledBySignal(SIGSEGV), "");
}
#endif

}  // namespace
}  // namespace mojo::host
