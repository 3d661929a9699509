// What it is: DeviceStream, a cheap handle to a queue of one device. Streams live until the process ends.
// Ordering: work on one stream runs in the order of the calls; two streams are ordered only by enqueue_wait_for.
//   "enqueues on S" means: returns before the work has run. "blocks the host" means: the calling thread waits.
// Threads: any thread may use a stream; calls from several threads are ordered by whoever comes first. No call
//   holds a lock while it blocks the host.
// Errors: throws mojo::Error. A failure inside queued work is raised once by the next synchronize of the stream or
//   of its device, or of an event recorded after the failure (O-08).
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include "mojo/buffer.h"
#include "mojo/copy_plan.h"
#include "mojo/device_event.h"
#include "mojo/device_ptr.h"
#include "mojo/export.h"
#include "mojo/host_task.h"
#include "mojo/launch_config.h"

namespace mojo {

namespace detail {
class StreamState;
}

class CompletionFlag;
class UntypedFunction;
template <class Signature>
class DeviceFunction;

namespace detail {
// Calls `call(state)` and makes a Status of what it throws.
MOJO_API Status run_guarded(void (*call)(void*), void* state) noexcept;
}  // namespace detail

struct StreamOptions {
  int priority = 0;  // lower number, higher priority; clamped to the device's range
};

class MOJO_API DeviceStream {
 public:
  // Identity: ids count up from 0, the default stream, on each device, and are never reused.
  std::uint64_t id() const noexcept;
  int device_index() const noexcept;
  int priority() const noexcept;  // after clamping
  friend bool operator==(DeviceStream, DeviceStream) noexcept = default;

  // Whether all work queued so far is complete. Does not block (on a device with one queue it waits, A-02).
  // Never raises a failure of queued work.
  bool query() const;
  // Blocks the host until all work queued so far is complete, then raises the stream's oldest failure, once.
  void synchronize() const;
  // The same, and raises nothing of what queued work failed with: that stays on the stream.
  void wait_until_idle() const;
  // Whether queued work has failed and nobody has been told yet. Does not block.
  bool has_failure() const noexcept;

  // Enqueues: marks the work queued on this stream so far. `event` must belong to this stream's device.
  void record_event(DeviceEvent& event) const;
  // Enqueues: later work of this stream runs after the event's latest record. The event may belong to another
  // device. Does nothing if it was never recorded. The event may be destroyed at once.
  void enqueue_wait_for(const DeviceEvent& event) const;
  // Enqueues: later work of this stream runs after all work queued on `other` so far.
  void enqueue_wait_for(DeviceStream other) const;

  // Enqueues a task for a driver thread. `accesses` names the device memory it touches (for observers).
  void enqueue_host_task(const HostTask& task, std::span<const Access> accesses = {}) const;
  // Enqueues cuLaunchHostFunc's like: `func(user_data)` runs on a driver thread after all earlier work (D-05).
  void enqueue_host_func(void (*func)(void*), void* user_data) const;
  // The same for anything that can be called without arguments, move-only callables included. It is moved into the queue,
  // called once and destroyed on the driver's thread; what it throws is kept on the stream.
  template <class Callable>
  requires std::invocable < std::decay_t<Callable>
  & > void enqueue_host_func(Callable&& callable) const;
  // Enqueues: holds the stream until the flag's 64-bit value equals `value`; holds nothing else (D-06).
  void wait_for_host_value(const CompletionFlag& flag, std::uint64_t value) const;
  // Enqueues: keeps the stream busy for so long, holding no thread.
  void enqueue_delay(std::uint64_t nanoseconds) const;

  // Enqueues a launch of a compiled function. The arguments' types are checked by the C++ compiler against the function's
  // parameters: a DeviceBuffer<T> or Buffer<T> where Buffer<T> or Buffer<const T> is asked for, numbers that are not
  // narrowed. Arguments are copied; buffers must live until the call returns. Throws invalid_argument for no function, one of
  // another device, a grid or block of zero or beyond the limits, a buffer of another device.
  template <class... P, class... A>
  void enqueue_function(const DeviceFunction<void(P...)>& function, const LaunchConfig& config, A&&... arguments) const;
  // The same without types: `arguments[i]` points to `argument_sizes[i]` bytes, a buffer being its address and its number
  // of elements, 64 bits each. `accesses` names the memory it touches. Returns the error's message instead of throwing.
  std::optional<std::string> enqueue(const UntypedFunction& function, const LaunchConfig& config,
                                     std::span<const void* const> arguments,
                                     std::span<const std::uint32_t> argument_sizes,
                                     std::span<const Access> accesses = {}) const;

  // Enqueues a copy of all elements, the destination first. Each side is a DeviceBuffer, a Buffer, or host memory: a
  // PinnedBuffer or any contiguous range (span, vector, array). Both sides have as many elements of one type.
  //   pinned <-> device: enqueues; leave the host's side alone until the copy is complete.
  //   pageable -> device: enqueues; the data is staged, and the caller's memory free again, when the call returns.
  //   device -> pageable: blocks the host until the data is there, and raises the stream's failures.
  //   device -> device: enqueues. One side may be of another device than the stream; then order that device's streams too.
  template <class Destination, class Source>
  void copy(Destination&& destination, Source&& source) const;
  // Enqueues `value` over all elements of a DeviceBuffer or Buffer.
  template <detail::DeviceMemory Destination>
  void fill(Destination&& destination,
            const std::type_identity_t<typename detail::view_of<Destination>::value_type>& value) const;

  // Enqueues a linear copy within a device or, with `src_device` another index, between devices. The bytes do not
  // pass through the host where peers can reach each other. Orders this stream only: see wait rules in the docs.
  void copy_device_to_device(DevicePtr dst, DevicePtr src, std::uint64_t bytes, int src_device = -1) const;
  // Host to device by the copy table: enqueues; blocks the host only as `plan_upload` says. `pinned` is found out here.
  void upload(DevicePtr dst, const void* src, std::uint64_t bytes, bool non_blocking) const;
  // Device to host by the copy table: pinned and non_blocking enqueues, all else blocks until the data is there.
  void download(void* dst, DevicePtr src, std::uint64_t bytes, bool non_blocking) const;
  // Enqueues `pattern`, 1, 2, 4 or 8 bytes wide, over `bytes` bytes.
  void fill(DevicePtr dst, std::uint64_t bytes, std::uint64_t pattern, unsigned width = 1) const;

  // CUstream or hipStream_t; on the host device a stable non-null address that identifies the queue. Flushes.
  void* native_handle() const;
  // The number of operations queued so far; grows with each. For tests and tools.
  std::uint64_t position() const noexcept;

  detail::StreamState* state() const noexcept { return state_; }
  static DeviceStream from_state(detail::StreamState* state) noexcept { return DeviceStream(state); }

 private:
  explicit DeviceStream(detail::StreamState* state) noexcept : state_(state) {}
  void copy_buffers(const detail::RawBuffer& dst, const detail::RawBuffer& src) const;
  void upload_buffer(const detail::RawBuffer& dst, const void* src, std::uint64_t count) const;
  void download_buffer(void* dst, std::uint64_t count, const detail::RawBuffer& src) const;
  void fill_buffer(const detail::RawBuffer& dst, std::uint64_t pattern) const;
  void launch(const UntypedFunction& function, const LaunchConfig& config, std::span<const void* const> arguments,
              std::span<const std::uint32_t> argument_sizes, std::span<const detail::RawBuffer> buffers) const;
  detail::StreamState* state_;
};

}  // namespace mojo

// The bodies of the templates above.
#include "mojo/detail/stream_copy.h"
#include "mojo/detail/stream_host_function.h"
#include "mojo/detail/stream_launch.h"
