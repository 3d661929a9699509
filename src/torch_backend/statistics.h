// What it is: a figure of the allocators as torch spells it, for the device and the host allocator.
// Ordering: none. Threads: plain values. Errors: none.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>

#include "mojo/memory_statistics.h"

namespace mojo::torch_backend {

inline c10::CachingAllocator::Stat to_c10(const Statistic& statistic) {
  c10::CachingAllocator::Stat stat;
  stat.current = statistic.current;
  stat.peak = statistic.peak;
  stat.allocated = statistic.allocated;
  stat.freed = statistic.freed;
  return stat;
}

inline c10::CachingAllocator::StatArray to_c10(const StatisticArray& statistics) {
  c10::CachingAllocator::StatArray stats;
  std::transform(statistics.begin(), statistics.end(), stats.begin(),
                 [](const Statistic& statistic) { return to_c10(statistic); });
  return stats;
}

inline c10::CachingAllocator::DurationStat to_c10(const DurationStatistic& statistic) {
  c10::CachingAllocator::DurationStat stat;
  stat.total = statistic.total;
  stat.max = statistic.max;
  stat.min = statistic.min;
  stat.count = statistic.count;
  return stat;
}

}  // namespace mojo::torch_backend
