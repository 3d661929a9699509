// What it is: mojo::half (IEEE binary16) and mojo::bfloat16 in host programs: what device code calls by the same names, as
//   elements of buffers and as parameters. Storage with conversions from and to float; arithmetic is done in float.
// Ordering: none. Threads: plain values.
// Errors: none: rounds to nearest, ties to even; too large becomes infinity; a NaN stays one.
#pragma once

#include <bit>
#include <cstdint>

namespace mojo {
namespace detail {

constexpr std::uint16_t half_from_float(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U | (magnitude >> 13 & 0x3ffU));
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // rounds to 2^16 or more
  if (magnitude < 0x38800000U) {                                                    // below 2^-14: subnormal
    // Adding a half's unit in the last place times 2^23 lets the float addition do the rounding.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(rounded) - 0x3f000000U));
  }
  const std::uint32_t odd = magnitude >> 13 & 1U;
  return static_cast<std::uint16_t>(sign | (magnitude - 0x38000000U + 0xfffU + odd) >> 13);
}

constexpr float float_from_half(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13);
  if (magnitude < 0x400U) {
    const float value = static_cast<float>(magnitude) * 5.9604644775390625e-8F;  // 2^-24
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000U));
}

constexpr std::uint16_t bfloat16_from_float(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

}  // namespace detail

struct half {
  std::uint16_t bits;

  half() = default;
  constexpr explicit half(float value) noexcept : bits(detail::half_from_float(value)) {}
  constexpr explicit operator float() const noexcept { return detail::float_from_half(bits); }
};

struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  constexpr explicit bfloat16(float value) noexcept : bits(detail::bfloat16_from_float(value)) {}
  constexpr explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

}  // namespace mojo
