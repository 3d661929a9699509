// What it is: ElementCount, how many elements are asked for, made from any integer.
// Ordering: none. Threads: a plain value.
// Errors: `bytes` throws mojo::Error: invalid_argument for a negative count, out_of_range for more bytes than there are
//   addresses.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mojo/export.h"

namespace mojo {

// Keeps the sign, so that -1 is told as -1 and not as 2^64-1.
class ElementCount {
 public:
  template <std::integral Integer>
  // NOLINTNEXTLINE(google-explicit-constructor): any integer is a count
  requires(!std::same_as<Integer, bool>) constexpr ElementCount(Integer count) noexcept
      : value_(static_cast<std::uint64_t>(count)), negative_(std::is_signed_v<Integer> && count < Integer{0}) {}

  constexpr std::uint64_t value() const noexcept { return value_; }
  constexpr bool negative() const noexcept { return negative_; }
  // Bytes of so many elements; `call` begins the text of the error.
  MOJO_API std::uint64_t bytes(std::size_t element_bytes, const char* call) const;

 private:
  std::uint64_t value_;
  bool negative_;
};

}  // namespace mojo
