// What it is: the dtypes that a copy converts between, any of them into any other. Others (quantized, bits, sub-byte and
//   float4 types) are only moved.
// Ordering: none. Threads: any. Errors: none.
#pragma once

#include <c10/core/ScalarType.h>

namespace mojo::torch_backend {

constexpr bool is_convertible(c10::ScalarType type) noexcept {
  using enum c10::ScalarType;
  switch (type) {
    case Bool:
    case Byte:
    case Char:
    case Short:
    case Int:
    case Long:
    case UInt16:
    case UInt32:
    case UInt64:
    case Half:
    case BFloat16:
    case Float:
    case Double:
    case ComplexHalf:
    case ComplexFloat:
    case ComplexDouble:
    case Float8_e5m2:
    case Float8_e5m2fnuz:
    case Float8_e4m3fn:
    case Float8_e4m3fnuz:
    case Float8_e8m0fnu: return true;
    default: return false;
  }
}

}  // namespace mojo::torch_backend
