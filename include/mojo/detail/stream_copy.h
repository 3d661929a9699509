// What it is: the bodies of DeviceStream::copy and fill: which sides are device memory, and the elements' types.
// Ordering: as copy and fill. Threads: any. Errors: sides that do not fit do not compile; the rest as copy and fill.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ranges>
#include <type_traits>

#include "mojo/device_stream.h"

namespace mojo {
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

}  // namespace detail

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
