// What it is: AllocationPolicy, what a user may tune of the caching allocators. A leaf of the public vocabulary.
// Ordering: none. Threads: a plain value. Errors: none.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

namespace mojo {

// The meanings are those of torch's PYTORCH_ALLOC_CONF; the defaults change nothing.
struct AllocationPolicy {
  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

  // Blocks of more bytes than this are kept whole (max_split_size_mb) and serve only requests of more bytes than this
  // that are at most `max_non_split_rounding` bytes smaller than the block. At least 20 MiB; rounded up to 2 MiB.
  std::uint64_t max_split_bytes = unlimited;
  std::uint64_t max_non_split_rounding = std::uint64_t{20} << 20;
  // Into how many steps the sizes between two powers of two are divided (roundup_power2_divisions); 0 and 1: not. The
  // first entry is for requests below 2 MiB, each next one for those up to twice as large, the last for the rest.
  std::array<std::uint32_t, 16> power_of_two_steps{};
  // Under a memory limit, the share of it from which on unused memory goes back to the device before more is got
  // (garbage_collection_threshold); 0: never.
  double garbage_collection_threshold = 0;

  friend bool operator==(const AllocationPolicy&, const AllocationPolicy&) noexcept = default;
};

}  // namespace mojo
