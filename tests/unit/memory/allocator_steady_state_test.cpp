// In the steady state the allocators themselves allocate nothing: this program counts calls of operator new.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <new>
#include <vector>

#include "memory/caching_allocator.h"
#include "memory/pinned_allocator.h"

namespace {

thread_local std::size_t allocations = 0;

}  // namespace

// Not inlined, or the compiler pairs malloc with delete and warns.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace mojo::memory {
namespace {

struct Numbers final : SegmentSource, PinnedSource {
  std::uint64_t next = 1 << 20;
  Status allocate(std::uint64_t bytes, DevicePtr& out) noexcept override {
    out = DevicePtr{next};
    next += bytes;
    return {};
  }
  Status free(DevicePtr, std::uint64_t) noexcept override { return {}; }
  void memory_info(std::uint64_t& free, std::uint64_t& total) noexcept override { free = total = 0; }
  Status allocate(std::uint64_t bytes, void*& out) noexcept override {
    out = reinterpret_cast<void*>(next);
    next += bytes;
    return {};
  }
  Status free(void*, std::uint64_t) noexcept override { return {}; }
};

// Every stream has one operation in flight.
struct Streams final : FenceSource {
  std::uint64_t enqueued = 1;
  std::uint64_t position(StreamUid) noexcept override { return enqueued; }
  std::uint64_t completed(StreamUid) noexcept override { return enqueued - 1; }
  std::uint64_t ordered_before(StreamUid, StreamUid) noexcept override { return 0; }
  Status wait(Position, Fence) noexcept override { return {}; }
};

TEST(SteadyState, CachingAllocatorAllocatesNothing) {
  Numbers source;
  Streams streams;
  CachingAllocator allocator(source, streams);
  std::vector<Allocation> held(64);
  std::size_t before = 0;
  for (int round = 0; round < 200; ++round) {
    if (round == 100) before = allocations;
    for (std::size_t i = 0; i < held.size(); ++i) {
      const auto stream = static_cast<StreamUid>(1 + i % 3);
      ASSERT_TRUE(allocator.allocate(1000 + 5000 * (i % 7) + (i % 5 == 0 ? 3000000 : 0), stream, held[i]).ok());
      ASSERT_TRUE(allocator.record_stream(held[i].block, stream % 3 + 1).ok());
      ++streams.enqueued;
    }
    for (std::size_t i = 0; i < held.size(); ++i) {
      ASSERT_TRUE(allocator.free(held[i * 29 % held.size()].block).ok());
      ++streams.enqueued;
    }
  }
  EXPECT_EQ(allocations, before);
}

TEST(SteadyState, PinnedAllocatorAllocatesNothing) {
  Numbers source;
  Streams streams;
  PinnedAllocator allocator(source, streams);
  std::vector<PinnedAllocation> held(32);
  std::size_t before = 0;
  for (int round = 0; round < 200; ++round) {
    if (round == 100) before = allocations;
    for (std::size_t i = 0; i < held.size(); ++i) {
      ASSERT_TRUE(allocator.allocate(1000 * (i + 1), held[i]).ok());
      ASSERT_TRUE(allocator.record_use(held[i].block, {static_cast<StreamUid>(1 + i % 3), ++streams.enqueued}).ok());
    }
    for (const PinnedAllocation& a : held) ASSERT_TRUE(allocator.free(a.ptr).ok());
    ++streams.enqueued;
  }
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace mojo::memory
