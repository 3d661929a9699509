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
#include <cstring>
#include <functional>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>

#include "mojo/buffer.h"
#include "mojo/copy_plan.h"
#include "mojo/device_event.h"
#include "mojo/device_ptr.h"
#include "mojo/export.h"
#include "mojo/host_task.h"

namespace mojo {

namespace detail {
class StreamState;
}

class CompletionFlag;

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
  detail::StreamState* state_;
};

namespace detail {

template <class X>
concept HostMemory = !DeviceMemory<X> && std::ranges::contiguous_range<X> && std::ranges::sized_range<X>;

template <class X>
struct element_of {
  using type = void;
};
template <DeviceMemory X>
struct element_of<X> {
  using type = typename view_of<X>::element_type;
};
template <HostMemory X>
struct element_of<X> {
  using type = std::remove_reference_t<std::ranges::range_reference_t<X>>;
};

// What a queued callable is to the library: one allocation, two functions.
template <class Callable>
HostTask task_of(Callable* callable) noexcept {
  HostTask task;
  task.run = [](void* raw) noexcept -> Status {
    const std::unique_ptr<Callable> held(static_cast<Callable*>(raw));
    return run_guarded([](void* c) { std::invoke(*static_cast<Callable*>(c)); }, raw);
  };
  task.drop = [](void* raw) noexcept { delete static_cast<Callable*>(raw); };
  task.state = callable;
  task.name = "host function";
  return task;
}

}  // namespace detail

template <class Callable>
requires std::invocable < std::decay_t<Callable>
& > void DeviceStream::enqueue_host_func(Callable&& callable) const {
  auto held = std::make_unique<std::decay_t<Callable>>(std::forward<Callable>(callable));
  enqueue_host_task(detail::task_of(held.get()));
  static_cast<void>(held.release());  // the task owns it now
}

template <class Destination, class Source>
void DeviceStream::copy(Destination&& destination, Source&& source) const {
  constexpr bool to_device = detail::DeviceMemory<Destination>, from_device = detail::DeviceMemory<Source>;
  static_assert(to_device || detail::HostMemory<Destination>,
                "copy: the destination must be a DeviceBuffer, a Buffer, a PinnedBuffer or a contiguous range");
  static_assert(from_device || detail::HostMemory<Source>,
                "copy: the source must be a DeviceBuffer, a Buffer, a PinnedBuffer or a contiguous range");
  static_assert(to_device || from_device, "copy: neither side is device memory");
  using To = typename detail::element_of<Destination>::type;
  using From = typename detail::element_of<Source>::type;
  static_assert(!std::is_const_v<To>, "copy: the destination (the first argument) is read-only");
  static_assert(std::is_same_v<std::remove_const_t<To>, std::remove_const_t<From>>,
                "copy: source and destination have elements of different types");
  static_assert(std::is_trivially_copyable_v<To>, "copy: the elements must be trivially copyable");
  if constexpr (to_device && from_device) {
    copy_buffers(destination.view().raw(), source.view().raw());
  } else if constexpr (to_device) {
    upload_buffer(destination.view().raw(), std::ranges::data(source), std::ranges::size(source));
  } else {
    download_buffer(std::ranges::data(destination), std::ranges::size(destination), source.view().raw());
  }
}

template <detail::DeviceMemory Destination>
void DeviceStream::fill(Destination&& destination,
                        const std::type_identity_t<typename detail::view_of<Destination>::value_type>& value) const {
  using View = detail::view_of<Destination>;
  static_assert(!std::is_const_v<typename View::element_type>, "fill: the buffer is read-only");
  constexpr std::size_t width = sizeof(typename View::value_type);
  static_assert(width == 1 || width == 2 || width == 4 || width == 8, "fill: elements of 1, 2, 4 or 8 bytes only");
  std::uint64_t pattern = 0;
  std::memcpy(&pattern, &value, width);  // drivers take the low bytes first, as all supported machines do
  fill_buffer(destination.view().raw(), pattern);
}

}  // namespace mojo
