// What it is: whether a buffer may be used on a stream: its device, and under the checked driver that it is alive.
// Ordering: none. Threads: any. Errors: invalid_argument, beginning with the name of the call.
#pragma once

#include "mojo/buffer.h"
#include "mojo/status.h"

namespace mojo::detail {
class StreamState;
}

namespace mojo::runtime {

// The buffer belongs to the stream's device and, where buffers are checked, lies in live memory.
Status check_buffer(const char* call, const detail::StreamState& stream, const detail::RawBuffer& buffer) noexcept;
// The second half alone, for the one side of a copy that may be of another device.
Status check_alive(const char* call, const detail::RawBuffer& buffer) noexcept;

}  // namespace mojo::runtime
