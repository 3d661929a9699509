// What it is: a CachingAllocator on streams that the test steps by hand, with and without fences.
// Ordering, Threads, Errors: see fakes.h.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/caching_allocator.h"
#include "unit/memory/fakes.h"

namespace mojo::memory::test {

inline constexpr std::uint64_t KiB = 1024, MiB = 1024 * KiB;
inline constexpr StreamUid A = 1, B = 2, C = 3;

class CachingAllocatorFixture : public ::testing::TestWithParam<bool> {
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

}  // namespace mojo::memory::test
