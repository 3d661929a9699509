// What it is: the figures of the caching allocators, with the meanings and names of c10::CachingDeviceAllocator.
// Ordering: none. Threads: plain values, a consistent snapshot at the call. Errors: none.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace mojo {

struct Statistic {
  std::int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};

using StatisticArray = std::array<Statistic, 3>;  // aggregate, small pool, large pool

struct MemoryStatistics {
  StatisticArray allocation, segment, active, inactive_split;                                           // counts
  StatisticArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;  // bytes
  Statistic oversize_allocations, oversize_segments;
  std::int64_t num_alloc_retries = 0, num_ooms = 0, num_sync_all_streams = 0;
  std::int64_t num_device_alloc = 0, num_device_free = 0, max_split_size = -1;
};

// Microseconds spent in calls of the driver.
struct DurationStatistic {
  std::int64_t total = 0, max = 0, min = 0, count = 0;
};

// As at::HostStats.
struct PinnedStatistics {
  Statistic active_requests, active_bytes;  // blocks handed out, or freed but still used by queued work
  Statistic allocations, allocated_bytes;   // blocks got from the driver, cached ones included
  DurationStatistic host_alloc_time, host_free_time;
  std::int64_t num_host_alloc = 0, num_host_free = 0;
};

enum class BlockState : std::uint8_t { allocated, pending_free, inactive };  // pending_free: recorded uses not done

struct BlockSnapshot {
  std::uint64_t address = 0, bytes = 0, requested_bytes = 0;
  BlockState state = BlockState::inactive;
};

struct SegmentSnapshot {
  std::uint64_t address = 0, bytes = 0;
  std::uint64_t stream_id = 0;  // of the stream that the segment was allocated for
  bool large = false;
  std::vector<BlockSnapshot> blocks;
};

}  // namespace mojo
