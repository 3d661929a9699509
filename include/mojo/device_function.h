// What it is: DeviceFunction<void(Parameters...)>, a function compiled at run time for one device, made by
//   DeviceContext::compile_function and launched by DeviceStream::enqueue_function, which checks the arguments' types.
// Ordering: none. It may be destroyed while launches of it are queued.
// Threads: a cheap reference to what is compiled; any thread may use and copy it.
// Errors: none.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "mojo/buffer.h"
#include "mojo/export.h"
#include "mojo/float16.h"
#include "mojo/parameter.h"

namespace mojo {

namespace detail {
class FunctionState;
}

// A device function whose parameters the C++ compiler does not know: for DeviceStream::enqueue.
class MOJO_API UntypedFunction {
 public:
  UntypedFunction() noexcept = default;  // none: a launch of it is refused
  explicit operator bool() const noexcept { return state_ != nullptr; }
  std::string name() const;           // empty for none
  int device_index() const noexcept;  // -1 for none

  detail::FunctionState* state() const noexcept { return state_.get(); }
  static UntypedFunction adopt(std::shared_ptr<detail::FunctionState> state) noexcept {
    return UntypedFunction(std::move(state));
  }

 protected:
  explicit UntypedFunction(std::shared_ptr<detail::FunctionState> state) noexcept : state_(std::move(state)) {}

 private:
  std::shared_ptr<detail::FunctionState> state_;
};

namespace detail {

// A Buffer as device code sees it.
struct PassedBuffer {
  std::uint64_t address = 0, count = 0;
};

template <class P>
using Passed = std::conditional_t<is_buffer<P>, PassedBuffer, P>;

// What device code of the same types has.
template <class T>
constexpr ParameterKind kind_of() noexcept {
  if constexpr (std::is_same_v<T, bool>) {
    return ParameterKind::boolean;
  } else if constexpr (std::is_enum_v<T>) {
    return kind_of<std::underlying_type_t<T>>();
  } else if constexpr (std::is_integral_v<T>) {
    return std::is_signed_v<T> ? ParameterKind::signed_integer : ParameterKind::unsigned_integer;
  } else if constexpr (std::is_floating_point_v<T>) {
    return ParameterKind::floating;
  } else if constexpr (std::is_same_v<T, half>) {
    return ParameterKind::half;
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return ParameterKind::bfloat16;
  } else {
    return ParameterKind::other;
  }
}

template <class P>
constexpr ParameterDescription describe() noexcept {
  if constexpr (is_buffer<P>) {
    using Element = typename P::value_type;
    constexpr bool constant = std::is_const_v<typename P::element_type>;
    return {constant ? ParameterKind::buffer_of_const : ParameterKind::buffer, sizeof(PassedBuffer), kind_of<Element>(),
            sizeof(Element)};
  } else {
    return {kind_of<P>(), sizeof(P)};
  }
}

// What a parameter may be: a Buffer<T>, a number, or a trivially copyable value that device code declares alike.
template <class P>
concept Parameter = is_buffer<P> ||(std::is_trivially_copyable_v<P>&& std::is_same_v<P, std::remove_cvref_t<P>> &&
                                    !std::is_pointer_v<P> && !std::is_null_pointer_v<P>);

// Braces refuse what could lose a part of the value: double to float, int to unsigned, long to int.
template <class P, class A>
concept ConvertsWithoutNarrowing = requires(A&& argument) {
  P{std::forward<A>(argument)};
};

template <class P, class A>
constexpr bool accepts_buffer() {
  if constexpr (DeviceMemory<A>) {
    return std::convertible_to<view_of<A>, P>;
  } else {
    return false;
  }
}

template <class P, class A>
constexpr bool accepts() {
  if constexpr (is_buffer<P>) {
    return accepts_buffer<P, A>();
  } else if constexpr (std::is_arithmetic_v<P>) {
    return std::is_arithmetic_v<std::remove_cvref_t<A>> && ConvertsWithoutNarrowing<P, A>;
  } else {
    return std::is_same_v<P, std::remove_cvref_t<A>>;
  }
}

// Says in the compiler's message what is wrong with argument `Index` (from 0) for a parameter `P`.
template <std::size_t Index, class P, class A>
constexpr void explain_argument() {
  if constexpr (!accepts<P, A>()) {
    if constexpr (is_buffer<P> && !DeviceMemory<A>) {
      static_assert(accepts<P, A>(), "enqueue_function: this parameter is a Buffer: pass a DeviceBuffer or a Buffer");
    } else if constexpr (is_buffer<P>) {
      static_assert(!std::is_const_v<typename view_of<A>::element_type>,
                    "enqueue_function: the function writes this buffer, and the argument is read-only");
      static_assert(std::is_const_v<typename view_of<A>::element_type>,
                    "enqueue_function: the buffer's elements are not of the parameter's type");
    } else if constexpr (std::is_arithmetic_v<P> && std::is_arithmetic_v<std::remove_cvref_t<A>>) {
      static_assert(accepts<P, A>(),
                    "enqueue_function: the argument would be narrowed to the parameter's type; convert it by a cast");
    } else {
      static_assert(accepts<P, A>(), "enqueue_function: the argument is not of the parameter's type");
    }
  }
}

template <class P, class A>
Passed<P> pass(A&& argument) noexcept {
  if constexpr (is_buffer<P>) {
    const P view = argument.view();
    return {view.data().address, view.size()};
  } else {
    return P{std::forward<A>(argument)};
  }
}

}  // namespace detail

template <class Signature>
class DeviceFunction {
  static_assert(!std::is_same_v<Signature, Signature>, "a device function's signature is void(Parameters...)");
};

template <class... P>
class DeviceFunction<void(P...)> : public UntypedFunction {
  static_assert(
      (detail::Parameter<P> && ...),
      "a device function's parameters are mojo::Buffer<T>, numbers and trivially copyable values: no pointers "
      "and no references");

 public:
  DeviceFunction() noexcept = default;  // none: a launch of it is refused

 private:
  friend class DeviceContext;
  static constexpr std::array<ParameterDescription, sizeof...(P)> parameters{detail::describe<P>()...};
  explicit DeviceFunction(UntypedFunction function) noexcept : UntypedFunction(std::move(function)) {}
};

}  // namespace mojo
