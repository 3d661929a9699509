// What it is: the current device and, on each device, the current stream of this thread; and the two spellings of a
//   stream, c10::Stream (three integers) and mojo::DeviceStream (a handle).
// Ordering: none; nothing here enqueues or waits.
// Threads: all of it belongs to the calling thread. A new thread starts on device 0 and on default streams (O-03).
// Errors: c10::Error for a device index out of range (the message has the range) and for a stream id that the device
//   does not have (S-12); both leave everything as it was. Asking for an index or an id opens no device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "mojo/device_context.h"
#include "mojo/device_stream.h"
#include "mojo/export.h"

namespace mojo::torch_backend {

inline constexpr c10::DeviceType device_type = c10::DeviceType::PrivateUse1;
inline constexpr std::size_t max_devices = 128;  // c10::DeviceIndex is an int8_t

namespace detail {

struct CurrentStream {
  mojo::detail::StreamState* state = nullptr;  // null: the default stream, and its device was not opened from here yet
  std::int64_t id = 0;
};

// Streams live as long as the process, so what was looked up once stays right.
struct LookedUpStream {
  mojo::detail::StreamState* state = nullptr;
  std::int64_t id = 0;
  c10::DeviceIndex device = -1;
};

struct ThreadState {
  c10::DeviceIndex device = 0;
  std::array<CurrentStream, max_devices> streams{};
  std::array<LookedUpStream, 16> looked_up{};
};

extern constinit thread_local ThreadState thread_state;

// What the calling thread has of a device. Throws for a negative index, which is no device of ours (CPU's is -1).
[[noreturn]] void throw_no_device(c10::DeviceIndex index);
inline CurrentStream& current_of(c10::DeviceIndex index) {
  if (index < 0) [[unlikely]]
    throw_no_device(index);
  return thread_state.streams[static_cast<std::size_t>(index)];
}

mojo::detail::StreamState* open_default_stream(c10::DeviceIndex index);
mojo::detail::StreamState* look_up_stream(c10::DeviceIndex index, std::int64_t id);

}  // namespace detail

// How many devices there are, at most max_devices - 1. Opens none. Throws if the driver cannot be chosen.
MOJO_API c10::DeviceIndex device_count();
// The same, 0 instead of an exception.
c10::DeviceIndex device_count_or_zero() noexcept;

// `index` itself, or the current device for -1. Throws if there is no such device.
MOJO_API c10::DeviceIndex checked_device(c10::DeviceIndex index);

inline c10::DeviceIndex current_device() noexcept { return detail::thread_state.device; }
MOJO_API void set_current_device(c10::DeviceIndex index);
// The same without the check, for destructors: an index out of range is ignored.
void set_current_device_unchecked(c10::DeviceIndex index) noexcept;

// The context of a device that exists; opens it.
MOJO_API DeviceContext context(c10::DeviceIndex index);

// The current stream of a device that exists; opens the device.
inline DeviceStream current_stream(c10::DeviceIndex index) {
  mojo::detail::StreamState* const state = detail::current_of(index).state;
  return DeviceStream::from_state(state != nullptr ? state : detail::open_default_stream(index));
}

// Makes `stream` current on its device and returns the one that was.
DeviceStream exchange_stream(c10::DeviceIndex index, DeviceStream stream);

// The id of the current stream; does not open the device.
inline std::int64_t current_stream_id(c10::DeviceIndex index) noexcept {
  return index < 0 ? 0 : detail::thread_state.streams[static_cast<std::size_t>(index)].id;
}
// Makes the stream of that id current on the device and returns the id of the one that was.
std::int64_t exchange_stream_id(c10::DeviceIndex index, std::int64_t id);

inline c10::Stream to_c10(c10::DeviceIndex index, std::int64_t id) noexcept {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(device_type, index), id);
}
inline c10::Stream to_c10(DeviceStream stream) noexcept {
  return to_c10(static_cast<c10::DeviceIndex>(stream.device_index()), static_cast<std::int64_t>(stream.id()));
}

// The stream that a c10::Stream names; throws for an id that no stream of the device has, and for another device type.
MOJO_API DeviceStream from_c10(const c10::Stream& stream);

}  // namespace mojo::torch_backend
