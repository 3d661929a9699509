// What it is: mojo::half (IEEE binary16) and mojo::bfloat16, two bytes each; arithmetic is done in float.
// Ordering: none. Threads: device code. Errors: rounds to nearest, ties to even; too large becomes infinity; a NaN stays.
#pragma once

#include "mojo/kernel/math.h"
#include "mojo/kernel/platform.h"

namespace mojo {
namespace platform {

MOJO_DEVICE uint16 half_from_float(float value) {
  const uint32 bits = bit_cast<uint32>(value);
  const uint32 sign = bits >> 16 & 0x8000u;
  const uint32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<uint16>(sign | 0x7c00u);  // rounds to 2^16 or more
  if (magnitude < 0x38800000u) {                                             // below 2^-14: subnormal
    // Adding a half's unit in the last place times 2^23 lets the float addition do the rounding.
    const float rounded = bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16>(sign | (bit_cast<uint32>(rounded) - 0x3f000000u));
  }
  const uint32 odd = magnitude >> 13 & 1u;
  return static_cast<uint16>(sign | (magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

MOJO_DEVICE float float_from_half(uint16 half) {
  const uint32 sign = (half & 0x8000u) << 16;
  const uint32 magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude < 0x400u) {
    const float value = static_cast<float>(magnitude) * 5.9604644775390625e-8f;  // 2^-24
    return sign != 0 ? -value : value;
  }
  return bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

MOJO_DEVICE uint16 bfloat16_from_float(float value) {
  const uint32 bits = bit_cast<uint32>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16>(bits >> 16 | 0x40u);
  return static_cast<uint16>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

MOJO_DEVICE float float_from_bfloat16(uint16 bits) { return bit_cast<float>(static_cast<uint32>(bits) << 16); }

}  // namespace platform

struct half {
  uint16 bits;

  half() = default;
  MOJO_DEVICE half(float value) : bits(platform::half_from_float(value)) {}
  MOJO_DEVICE operator float() const { return platform::float_from_half(bits); }
  MOJO_DEVICE half& operator+=(float other) { return *this = *this + other; }
  MOJO_DEVICE half& operator-=(float other) { return *this = *this - other; }
  MOJO_DEVICE half& operator*=(float other) { return *this = *this * other; }
  MOJO_DEVICE half& operator/=(float other) { return *this = *this / other; }
};

struct bfloat16 {
  uint16 bits;

  bfloat16() = default;
  MOJO_DEVICE bfloat16(float value) : bits(platform::bfloat16_from_float(value)) {}
  MOJO_DEVICE operator float() const { return platform::float_from_bfloat16(bits); }
  MOJO_DEVICE bfloat16& operator+=(float other) { return *this = *this + other; }
  MOJO_DEVICE bfloat16& operator-=(float other) { return *this = *this - other; }
  MOJO_DEVICE bfloat16& operator*=(float other) { return *this = *this * other; }
  MOJO_DEVICE bfloat16& operator/=(float other) { return *this = *this / other; }
};

}  // namespace mojo
