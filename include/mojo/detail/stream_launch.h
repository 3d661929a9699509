// What it is: the body of DeviceStream::enqueue_function: checks the arguments' types and lays them out for the launch.
// Ordering: as enqueue_function. Threads: any. Errors: wrong arguments do not compile; the rest as enqueue_function.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "mojo/device_function.h"
#include "mojo/device_stream.h"

namespace mojo {
namespace detail {

template <class P, class A>
void note_buffer(RawBuffer*& next, A&& argument) noexcept {
  if constexpr (is_buffer<P>) *next++ = P(argument.view()).raw();
}

}  // namespace detail

template <class... P, class... A>
void DeviceStream::enqueue_function(const DeviceFunction<void(P...)>& function, const LaunchConfig& config,
                                    A&&... arguments) const {
  static_assert(sizeof...(P) == sizeof...(A),
                "enqueue_function: the number of arguments is not that of the function's parameters");
  if constexpr (sizeof...(P) == sizeof...(A)) {
    [&]<std::size_t... I>(std::index_sequence<I...>) { (detail::explain_argument<I, P, A>(), ...); }
    (std::index_sequence_for<P...>{});
    if constexpr ((detail::accepts<P, A>() && ...)) {
      constexpr std::size_t buffer_count = (std::size_t{detail::is_buffer<P>} + ... + 0);
      std::array<detail::RawBuffer, buffer_count> buffers;
      [[maybe_unused]] detail::RawBuffer* next = buffers.data();
      (detail::note_buffer<P>(next, arguments), ...);
      const std::tuple<detail::Passed<P>...> values(detail::pass<P>(std::forward<A>(arguments))...);
      const std::array<std::uint32_t, sizeof...(P)> sizes{std::uint32_t{sizeof(detail::Passed<P>)}...};
      std::apply(
          [&](const auto&... value) {
            const std::array<const void*, sizeof...(P)> pointers{static_cast<const void*>(&value)...};
            launch(function, config, pointers, sizes, buffers);
          },
          values);
    }
  }
}

}  // namespace mojo
