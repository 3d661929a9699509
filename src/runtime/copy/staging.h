// What it is: staging memory: pinned blocks that hold the data of queued pageable copies.
// Ordering: a staged part belongs to one operation of one stream and returns to the cache once that is complete.
// Threads: any. The parts of one stream are bounded by its device's setting; streams do not wait for each other's parts.
// Errors: Status.
#pragma once

#include <cstdint>

#include "memory/pinned_allocator.h"
#include "mojo/status.h"

namespace mojo::detail {
class StreamState;
}

namespace mojo::runtime {

// Parts of a copy that is larger than the bound; several are in flight while the next is filled.
constexpr std::uint64_t staging_part_bytes = std::uint64_t{4} << 20;

// Pinned memory for `bytes` bytes (at most the bound) of `stream`. Blocks the host, for earlier staged operations of the
// same stream alone, while the stream's staged operations hold so much that the bound would be passed.
Status acquire_staging(detail::StreamState& stream, std::uint64_t bytes, memory::PinnedAllocation& out) noexcept;

// The operation `number` of `stream` uses the part; afterwards it is free again.
void release_staging(detail::StreamState& stream, const memory::PinnedAllocation& part, std::uint64_t bytes,
                     std::uint64_t number) noexcept;

}  // namespace mojo::runtime
