// What it is: DeviceBuffer<T>, the owner of elements in device memory, made by DeviceContext::allocate.
// Ordering: belongs to the stream that it was allocated for, and is freed in the order of that stream: work queued on it
//   before the destruction still has the memory. Work on another stream needs `record_stream`, before or after it is
//   queued, and a wait of its own for what it reads.
// Threads: a DeviceBuffer by one thread at a time; different ones by any. Destruction never blocks the host and is
//   allowed on any thread, host functions included.
// Errors: throws mojo::Error, mojo::OutOfMemory.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "mojo/buffer.h"
#include "mojo/device_context.h"

namespace mojo {

// Move-only. A moved-from buffer is empty: size 0, no memory. The contents of a new one are not initialised.
template <class T>
class DeviceBuffer {
 public:
  static_assert(std::is_trivially_copyable_v<T>, "device memory holds trivially copyable elements only");
  static_assert(!std::is_const_v<T>, "an owner of constant elements could not be written; use DeviceBuffer<T>::view()");
  using value_type = T;

  DeviceBuffer() noexcept = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : memory_(std::exchange(other.memory_, {})), view_(std::exchange(other.view_, {})) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer old(std::move(other));  // what this owned is freed now
    std::swap(memory_, old.memory_);
    std::swap(view_, old.view_);
    return *this;
  }
  ~DeviceBuffer() { DeviceContext::free(memory_.handle); }

  std::uint64_t size() const noexcept { return view_.size(); }  // elements
  std::uint64_t size_bytes() const noexcept { return view_.size_bytes(); }
  bool empty() const noexcept { return view_.empty(); }
  int device_index() const noexcept { return view_.device_index(); }
  // The address: a value for queued work, not for the host to dereference.
  DevicePtr data() const noexcept { return view_.data(); }
  Buffer<T> view() noexcept { return view_; }
  Buffer<const T> view() const noexcept { return view_; }
  // `count` elements from `offset` on; out_of_range if they are not all inside.
  Buffer<T> part(ElementCount offset, ElementCount count) { return view_.part(offset, count); }
  Buffer<const T> part(ElementCount offset, ElementCount count) const { return view_.part(offset, count); }

  // Keeps the memory, once freed, from being reused before the work queued on `stream` at the free is done. Enqueues
  // nothing, blocks nothing, orders nothing.
  void record_stream(DeviceStream stream) const { DeviceContext::record_stream(memory_.handle, stream); }

 private:
  friend class DeviceContext;
  DeviceBuffer(Allocation memory, std::uint64_t size, int device) noexcept
      : memory_(memory), view_(memory.ptr, size, device) {}

  Allocation memory_;
  Buffer<T> view_;
};

template <class T>
DeviceBuffer<T> DeviceContext::allocate(ElementCount count, DeviceStream stream) const {
  return {allocate_bytes(count.bytes(sizeof(T), "allocate"), stream), count.value(), index()};
}

}  // namespace mojo
