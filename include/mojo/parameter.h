// What it is: ParameterDescription, what kind of value a device function's parameter is, so that the signature that a host
//   program states can be compared with the source that was compiled.
// Ordering: none. Threads: plain values. Errors: none.
#pragma once

#include <cstdint>

namespace mojo {

enum class ParameterKind : std::uint8_t {
  other = 0,  // a class, of which only the size is known
  signed_integer = 1,
  unsigned_integer = 2,
  floating = 3,
  half = 4,
  bfloat16 = 5,
  boolean = 6,
  pointer = 7,
  buffer = 8,
  buffer_of_const = 9,
};

// An enumeration is its integer.
struct ParameterDescription {
  ParameterKind kind = ParameterKind::other;
  std::uint32_t bytes = 0;
  // Of a buffer's elements.
  ParameterKind element = ParameterKind::other;
  std::uint32_t element_bytes = 0;

  friend constexpr bool operator==(const ParameterDescription&, const ParameterDescription&) noexcept = default;
};

}  // namespace mojo
