// What it is: PinnedBuffer<T>, the owner of elements in pinned host memory, made by DeviceContext::allocate_pinned. A
//   contiguous range: it converts to std::span<T>.
// Ordering: the host reads and writes it at once, whatever is queued: wait for the copies that use it first. Destroyed
//   with copies pending, its memory is reused only once these are done; the copies of DeviceStream record that.
// Threads: a PinnedBuffer by one thread at a time. Destruction never blocks the host and is allowed on any thread.
// Errors: throws mojo::Error, mojo::OutOfMemory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "mojo/device_context.h"
#include "mojo/pinned.h"

namespace mojo {

// Move-only. A moved-from buffer is empty. The contents of a new one are not initialised. Portable: pinned for every device.
template <class T>
class PinnedBuffer {
 public:
  static_assert(std::is_trivially_copyable_v<T>, "pinned memory holds trivially copyable elements only");
  static_assert(!std::is_const_v<T>, "an owner of constant elements could not be written");
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  PinnedBuffer() noexcept = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : memory_(std::exchange(other.memory_, {})), size_(std::exchange(other.size_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    PinnedBuffer old(std::move(other));  // what this owned is freed now
    std::swap(memory_, old.memory_);
    std::swap(size_, old.size_);
    return *this;
  }
  ~PinnedBuffer() { pinned_free(memory_.handle); }

  std::size_t size() const noexcept { return size_; }  // elements
  bool empty() const noexcept { return size_ == 0; }
  T* data() noexcept { return static_cast<T*>(memory_.ptr); }
  const T* data() const noexcept { return static_cast<const T*>(memory_.ptr); }
  T* begin() noexcept { return data(); }
  T* end() noexcept { return data() + size_; }
  const T* begin() const noexcept { return data(); }
  const T* end() const noexcept { return data() + size_; }
  T& operator[](std::size_t i) noexcept { return data()[i]; }
  const T& operator[](std::size_t i) const noexcept { return data()[i]; }

  // Keeps the memory, once freed, from being reused before what is queued on `stream` so far is done: for work that names
  // it by address, which the library does not see. Copies need none.
  void record_stream(DeviceStream stream) const { pinned_record_use(memory_.ptr, stream); }

 private:
  friend class DeviceContext;
  PinnedBuffer(PinnedAllocation memory, std::uint64_t size) noexcept : memory_(memory), size_(size) {}

  PinnedAllocation memory_;
  std::size_t size_ = 0;
};

template <class T>
PinnedBuffer<T> DeviceContext::allocate_pinned(ElementCount count) const {
  return {pinned_allocate(*this, count.bytes(sizeof(T), "allocate_pinned")), count.value()};
}

}  // namespace mojo
