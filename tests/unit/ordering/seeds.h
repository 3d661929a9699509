// What it is: the seeds of property tests: a fixed one and a new one at each run, or the one that MOJO_TEST_SEED gives.
// Ordering, Threads: none. Errors: none.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace mojo::test {

inline std::vector<std::uint64_t> seeds() {
  static const std::vector<std::uint64_t> all = [] {
    if (const char* given = std::getenv("MOJO_TEST_SEED")) {
      return std::vector<std::uint64_t>{std::strtoull(given, nullptr, 10)};
    }
    return std::vector<std::uint64_t>{20240229, std::random_device{}()};
  }();
  for (const std::uint64_t seed : all) {
    std::printf("seed %llu (MOJO_TEST_SEED repeats it)\n", static_cast<unsigned long long>(seed));
  }
  return all;
}

// A number from [0, n).
inline std::uint64_t below(std::mt19937_64& random, std::uint64_t n) {
  return std::uniform_int_distribution<std::uint64_t>(0, n - 1)(random);
}

}  // namespace mojo::test
