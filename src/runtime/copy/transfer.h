// What it is: runs linear copies between host and device memory along a CopyPlan.
// Ordering: on the given stream. Blocks the host exactly where the plan says.
// Threads: any. Errors: Status; a blocking download also returns the stream's failures up to the copy.
#pragma once

#include <cstdint>

#include "mojo/copy_plan.h"
#include "mojo/device_ptr.h"
#include "mojo/status.h"

namespace mojo::detail {
class StreamState;
}

namespace mojo::runtime {

Status upload(detail::StreamState& stream, DevicePtr dst, const void* src, std::uint64_t bytes,
              bool non_blocking) noexcept;
Status download(detail::StreamState& stream, void* dst, DevicePtr src, std::uint64_t bytes, bool non_blocking) noexcept;

}  // namespace mojo::runtime
