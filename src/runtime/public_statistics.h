// What it is: a figure of the allocators in src/memory as the public headers spell it.
// Ordering: none. Threads: plain values. Errors: none.
#pragma once

#include "memory/statistics.h"
#include "mojo/memory_statistics.h"

namespace mojo::runtime {

inline Statistic to_public(const memory::Stat& s) noexcept { return {s.current, s.peak, s.allocated, s.freed}; }
inline StatisticArray to_public(const memory::StatArray& a) noexcept {
  return {to_public(a[0]), to_public(a[1]), to_public(a[2])};
}
inline DurationStatistic to_public(const memory::DurationStat& d) noexcept { return {d.total, d.max, d.min, d.count}; }

}  // namespace mojo::runtime
