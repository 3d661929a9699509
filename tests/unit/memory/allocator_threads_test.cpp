// Both allocators from many threads at once. Run under ThreadSanitizer in CI.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "memory/caching_allocator.h"
#include "memory/pinned_allocator.h"
#include "unit/memory/fakes.h"
#include "unit/ordering/seeds.h"

namespace mojo::memory {
namespace {

using mojo::test::below;
using test::FakeSegments;
using test::SteppedStreams;

constexpr std::uint64_t KiB = 1024, MiB = 1024 * KiB;

// Which ranges are live, as the users see it.
class LiveRanges {
 public:
  void add(std::uint64_t address, std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto after = ranges_.lower_bound(address);
    EXPECT_TRUE(after == ranges_.end() || address + bytes <= after->first) << "overlap";
    EXPECT_TRUE(after == ranges_.begin() || std::prev(after)->first + std::prev(after)->second <= address) << "overlap";
    ranges_[address] = bytes;
  }
  void remove(std::uint64_t address) {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(ranges_.erase(address), 1u);
  }

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> ranges_;
};

void stress(std::uint64_t seed, bool fences, std::uint64_t capacity) {
  SCOPED_TRACE("seed " + std::to_string(seed) + (fences ? ", fences" : ", positions"));
  constexpr int threads = 4, steps = 2500;
  FakeSegments segments;
  segments.capacity = capacity;
  SteppedStreams streams(fences);
  CachingAllocator allocator(segments, streams);
  LiveRanges ranges;
  std::atomic<bool> stop{false};
  std::thread device([&] {
    std::mt19937_64 random(seed);
    while (!stop) {
      const auto stream = static_cast<StreamUid>(1 + below(random, 5));
      streams.step(stream);
      if (below(random, 8) == 0) streams.learn(stream);
      if (below(random, 64) == 0) {
        EXPECT_TRUE(allocator.empty_cache().ok());
      }
      if (below(random, 64) == 0) {
        EXPECT_GE(allocator.snapshot().size(), 0u);
      }
    }
  });
  std::vector<std::thread> workers;
  std::latch begin(threads);
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&, t] {
      std::mt19937_64 random(seed + 1 + static_cast<std::uint64_t>(t));
      std::vector<Allocation> held;
      begin.arrive_and_wait();
      for (int i = 0; i < steps; ++i) {
        const auto stream = static_cast<StreamUid>(1 + below(random, 5));
        const std::uint64_t choice = below(random, 10);
        if (choice < 5 && held.size() < 40) {
          Allocation a;
          const Status status = allocator.allocate(1 + below(random, below(random, 3) ? 8 * KiB : 12 * MiB), stream, a);
          if (!status.ok()) {
            EXPECT_EQ(status.code(), StatusCode::out_of_memory) << status.message();
            EXPECT_NE(capacity, 0u);
            continue;
          }
          ranges.add(a.ptr.address, a.bytes);
          streams.enqueue(stream);
          held.push_back(a);
        } else if (choice < 7 && !held.empty()) {
          streams.enqueue(stream);
          EXPECT_TRUE(allocator.record_stream(held[below(random, held.size())].ptr + 1, stream).ok());
        } else if (!held.empty()) {
          const std::size_t at = below(random, held.size());
          ranges.remove(held[at].ptr.address);
          EXPECT_TRUE((choice < 9 ? allocator.free(held[at].block) : allocator.free(held[at].ptr)).ok());
          held[at] = held.back();
          held.pop_back();
        }
      }
      for (const Allocation& a : held) {
        ranges.remove(a.ptr.address);
        EXPECT_TRUE(allocator.free(a.block).ok());
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  stop = true;
  device.join();
  streams.finish_all();
  for (StreamUid s = 1; s <= 5; ++s) streams.learn(s);
  EXPECT_TRUE(allocator.empty_cache().ok());
  EXPECT_EQ(segments.live(), 0u);
  EXPECT_EQ(streams.outstanding_fences(), 0u);
  const DeviceStatistics s = allocator.statistics();
  for (const StatArray* a : {&s.allocation, &s.segment, &s.active, &s.inactive_split, &s.allocated_bytes,
                             &s.reserved_bytes, &s.active_bytes, &s.inactive_split_bytes, &s.requested_bytes}) {
    for (const Stat& stat : *a) {
      EXPECT_EQ(stat.current, 0);
      EXPECT_EQ(stat.allocated, stat.freed);
    }
  }
}

TEST(CachingAllocatorThreads, StressWithRoom) {
  for (const std::uint64_t seed : mojo::test::seeds()) {
    for (const bool fences : {false, true}) stress(seed, fences, 0);
  }
}

TEST(CachingAllocatorThreads, StressWhenFull) {
  for (const std::uint64_t seed : mojo::test::seeds()) {
    for (const bool fences : {false, true}) stress(seed, fences, 300 * MiB);
  }
}

// M-07: memory that another thread is just returning is not missing.
TEST(CachingAllocatorThreads, NobodyRunsOutWhileOthersReturnMemory) {
  FakeSegments segments;
  segments.capacity = 64 * MiB;
  SteppedStreams streams;
  CachingAllocator allocator(segments, streams);
  Allocation cached;
  ASSERT_TRUE(allocator.allocate(60 * MiB, 1, cached).ok());
  ASSERT_TRUE(allocator.free(cached.block).ok());
  std::latch returning(1), open(1);
  segments.on_free = [&](std::uint64_t, std::uint64_t) {
    returning.count_down();
    open.wait();
  };
  Status empty, first;
  // Splits nothing: a block of 60 MiB would serve 30, so the cache is emptied by hand.
  std::thread returner([&] { empty = allocator.empty_cache(); });
  returning.wait();
  const int calls = segments.calls();
  Allocation a;
  std::thread asker([&] { first = allocator.allocate(30 * MiB, 2, a); });
  // Until it has been refused twice, it has not seen that it has to wait.
  while (segments.calls() < calls + 2) std::this_thread::yield();
  open.count_down();
  returner.join();
  asker.join();
  EXPECT_TRUE(empty.ok());
  EXPECT_TRUE(first.ok()) << first.message();
  EXPECT_EQ(allocator.statistics().num_ooms, 0);
}

class ThreadedPinned final : public PinnedSource {
 public:
  Status allocate(std::uint64_t bytes, void*& out) noexcept override {
    out = reinterpret_cast<void*>(next_.fetch_add(bytes));
    live_ += static_cast<std::int64_t>(bytes);
    return {};
  }
  Status free(void*, std::uint64_t bytes) noexcept override {
    live_ -= static_cast<std::int64_t>(bytes);
    return {};
  }
  std::int64_t live() const { return live_; }

 private:
  std::atomic<std::uintptr_t> next_{0x300000000};
  std::atomic<std::int64_t> live_{0};
};

TEST(PinnedAllocatorThreads, Stress) {
  for (const std::uint64_t seed : mojo::test::seeds()) {
    for (const bool fences : {false, true}) {
      ThreadedPinned source;
      SteppedStreams streams(fences);
      PinnedAllocator allocator(source, streams, {.keep_bytes = 64 * KiB});
      LiveRanges ranges;
      std::vector<std::thread> workers;
      for (int t = 0; t < 4; ++t) {
        workers.emplace_back([&, t] {
          std::mt19937_64 random(seed + static_cast<std::uint64_t>(t));
          std::vector<PinnedAllocation> held;
          for (int i = 0; i < 2500; ++i) {
            const auto stream = static_cast<StreamUid>(1 + below(random, 4));
            switch (below(random, 4)) {
              case 0: {
                PinnedAllocation a;
                ASSERT_TRUE(allocator.allocate(1 + below(random, 16 * KiB), a).ok());
                ranges.add(reinterpret_cast<std::uintptr_t>(a.ptr), a.bytes);
                held.push_back(a);
                break;
              }
              case 1:
                if (held.empty()) break;
                ranges.remove(reinterpret_cast<std::uintptr_t>(held.back().ptr));
                EXPECT_TRUE(allocator.free(held.back().block).ok());
                held.pop_back();
                break;
              case 2:
                if (!held.empty()) {
                  EXPECT_TRUE(allocator.record_use(held.back().ptr, streams.enqueue(stream)).ok());
                }
                break;
              default:
                streams.step(stream);
                streams.learn(stream);
                if (below(random, 50) == 0) {
                  EXPECT_TRUE(allocator.empty_cache().ok());
                }
                break;
            }
          }
          for (const PinnedAllocation& a : held) {
            ranges.remove(reinterpret_cast<std::uintptr_t>(a.ptr));
            EXPECT_TRUE(allocator.free(a.block).ok());
          }
        });
      }
      for (std::thread& worker : workers) worker.join();
      streams.finish_all();
      for (StreamUid s = 1; s <= 4; ++s) streams.learn(s);
      EXPECT_TRUE(allocator.empty_cache().ok());
      EXPECT_EQ(source.live(), 0);
      EXPECT_EQ(streams.outstanding_fences(), 0u);
    }
  }
}

}  // namespace
}  // namespace mojo::memory
