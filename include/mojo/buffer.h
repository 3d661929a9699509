// What it is: Buffer<T>, a view of elements in device memory: what copies, fills and kernels take. It owns nothing.
// Ordering: none. The owner (DeviceBuffer) must live until the work that uses the view is queued; if that is on another
//   stream than the owner's, it must also be told by record_stream.
// Threads: a plain value. Errors: `part` throws mojo::Error (out_of_range).
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "mojo/device_ptr.h"
#include "mojo/element_count.h"
#include "mojo/export.h"

namespace mojo {

namespace detail {

// A Buffer without its type, as the library's calls take it.
struct RawBuffer {
  DevicePtr ptr;
  std::uint64_t count = 0;  // of elements
  std::uint32_t element_bytes = 1;
  int device = -1;
  AccessMode mode = AccessMode::read;

  std::uint64_t bytes() const noexcept { return count * element_bytes; }
};

MOJO_API void check_part(std::uint64_t size, ElementCount offset, ElementCount count);

}  // namespace detail

template <class T>
class Buffer {
 public:
  static_assert(std::is_trivially_copyable_v<T>, "device memory holds trivially copyable elements only");
  using element_type = T;
  using value_type = std::remove_const_t<T>;

  constexpr Buffer() noexcept = default;
  // Memory that is not a DeviceBuffer's: `size` elements at `ptr` of device `device`.
  constexpr Buffer(DevicePtr ptr, std::uint64_t size, int device) noexcept : ptr_(ptr), size_(size), device_(device) {}
  // A view that may write is also one that only reads.
  template <class U, std::enable_if_t<std::is_const_v<T> && std::is_same_v<U, std::remove_const_t<T>>, int> = 0>
  constexpr Buffer(const Buffer<U>& other) noexcept  // NOLINT(google-explicit-constructor)
      : ptr_(other.data()), size_(other.size()), device_(other.device_index()) {}

  constexpr DevicePtr data() const noexcept { return ptr_; }
  constexpr std::uint64_t size() const noexcept { return size_; }  // elements
  constexpr std::uint64_t size_bytes() const noexcept { return size_ * sizeof(T); }
  constexpr int device_index() const noexcept { return device_; }
  constexpr bool empty() const noexcept { return size_ == 0; }
  constexpr Buffer view() const noexcept { return *this; }

  // `count` elements from `offset` on; out_of_range if they are not all inside.
  Buffer part(ElementCount offset, ElementCount count) const {
    detail::check_part(size_, offset, count);
    return {ptr_ + offset.value() * sizeof(T), count.value(), device_};
  }

  detail::RawBuffer raw() const noexcept {
    return {ptr_, size_, sizeof(T), device_, std::is_const_v<T> ? AccessMode::read : AccessMode::read_write};
  }

 private:
  DevicePtr ptr_;
  std::uint64_t size_ = 0;
  int device_ = -1;
};

namespace detail {

template <class>
inline constexpr bool is_buffer = false;
template <class T>
inline constexpr bool is_buffer<Buffer<T>> = true;

// The view of a Buffer or a DeviceBuffer; of a constant DeviceBuffer one that only reads.
template <class X>
using view_of = decltype(std::declval<X&>().view());

template <class X>
concept DeviceMemory = requires(X& x) {
  x.view();
}
&&is_buffer<view_of<X>>;

}  // namespace detail
}  // namespace mojo
