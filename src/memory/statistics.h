// What it is: the figures an allocator keeps, laid out as torch lays out its own (c10::CachingDeviceAllocator::DeviceStats,
//   at::HostStats), so that whoever speaks to torch copies them field by field.
// Ordering: none. Threads: plain values; the allocator guards its own with its mutex. Errors: none.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace mojo::memory {

// One quantity over time.
struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;       // since the last reset_peak
  std::int64_t allocated = 0;  // sum of the increases since the last reset_accumulated
  std::int64_t freed = 0;      // sum of the decreases

  void increase(std::int64_t amount) noexcept {
    current += amount;
    peak = std::max(current, peak);
    allocated += amount;
  }
  void decrease(std::int64_t amount) noexcept {
    current -= amount;
    freed += amount;
  }
  void set(std::int64_t value) noexcept {
    if (value > current) increase(value - current);
    if (value < current) decrease(current - value);
  }
  void reset_peak() noexcept { peak = current; }
  void reset_accumulated() noexcept { allocated = freed = 0; }

  friend bool operator==(const Stat&, const Stat&) noexcept = default;
};

enum class StatType : std::uint8_t { aggregate = 0, small_pool = 1, large_pool = 2 };

// A quantity of both pools together, of the small and of the large one; indexed by StatType.
struct StatArray : std::array<Stat, 3> {
  Stat& of(StatType type) noexcept { return (*this)[static_cast<std::size_t>(type)]; }
  const Stat& of(StatType type) const noexcept { return (*this)[static_cast<std::size_t>(type)]; }
  void increase(StatType pool, std::int64_t amount) noexcept {
    of(StatType::aggregate).increase(amount);
    of(pool).increase(amount);
  }
  void decrease(StatType pool, std::int64_t amount) noexcept {
    of(StatType::aggregate).decrease(amount);
    of(pool).decrease(amount);
  }
};

struct DeviceStatistics {
  StatArray allocation;            // count: blocks handed out and not freed
  StatArray segment;               // count: pieces of memory got from the device
  StatArray active;                // count: blocks handed out, or freed but still used by a stream
  StatArray inactive_split;        // count: free blocks that share their segment, and so cannot be returned
  StatArray allocated_bytes;       // bytes of `allocation`
  StatArray reserved_bytes;        // bytes of `segment`
  StatArray active_bytes;          // bytes of `active`
  StatArray inactive_split_bytes;  // bytes of `inactive_split`
  StatArray requested_bytes;       // bytes of `active` before rounding

  std::int64_t num_alloc_retries = 0;     // the device refused a segment and the cache was released
  std::int64_t num_ooms = 0;              // allocations that failed in the end
  Stat oversize_allocations;              // blocks too large to be split
  Stat oversize_segments;                 // as they are got
  std::int64_t num_sync_all_streams = 0;  // times the host waited for streams in order not to run out of memory
  std::int64_t num_device_alloc = 0;      // segments asked of the device and given
  std::int64_t num_device_free = 0;       // segments returned
  std::int64_t max_split_size = -1;       // -1: no bound

  template <typename F>
  void for_each_array(F&& f) {
    for (StatArray* a : {&allocation, &segment, &active, &inactive_split, &allocated_bytes, &reserved_bytes,
                         &active_bytes, &inactive_split_bytes, &requested_bytes}) {
      f(*a);
    }
  }
};

// Microseconds spent in calls of the driver.
struct DurationStat {
  std::int64_t total = 0, max = 0, min = 0, count = 0;

  void add(std::int64_t microseconds) noexcept {
    min = count == 0 ? microseconds : std::min(min, microseconds);
    max = count == 0 ? microseconds : std::max(max, microseconds);
    total += microseconds;
    ++count;
  }
  void merge(const DurationStat& other) noexcept {
    if (other.count == 0) return;
    min = count == 0 ? other.min : std::min(min, other.min);
    max = std::max(max, other.max);
    total += other.total;
    count += other.count;
  }
  void reset() noexcept { *this = {}; }
};

struct PinnedStatistics {
  static constexpr std::size_t bucket_count = 64;

  Stat live;  // count: blocks handed out and not freed
  Stat live_bytes;
  Stat active_requests;  // count: blocks handed out, or freed but still used by a stream
  Stat active_bytes;
  Stat allocations;  // count: blocks got from the driver, cached ones included
  Stat allocated_bytes;
  DurationStat host_alloc_time, host_free_time;
  std::int64_t num_host_alloc = 0;
  std::int64_t num_host_free = 0;
  std::array<std::int64_t, bucket_count> bucket_allocation{};  // driver allocations by ceil(log2(bytes))
};

}  // namespace mojo::memory
