// What it is: mathematics for float and double: mojo::sqrt, exp, log, pow, sin, ..., min, max, clamp, fma.
// Ordering: none. Threads: device code. Errors: as IEEE 754 says, NaN and infinities; errno is not set.
#pragma once

#include "mojo/kernel/platform.h"

#if MOJO_ON_GPU
#define MOJO_MATH(name) ::name
#else
#define MOJO_MATH(name) __builtin_##name
#endif

#define MOJO_MATH_1(name)                                           \
  MOJO_DEVICE float name(float a) { return MOJO_MATH(name##f)(a); } \
  MOJO_DEVICE double name(double a) { return MOJO_MATH(name)(a); }
#define MOJO_MATH_2(name)                                                       \
  MOJO_DEVICE float name(float a, float b) { return MOJO_MATH(name##f)(a, b); } \
  MOJO_DEVICE double name(double a, double b) { return MOJO_MATH(name)(a, b); }

namespace mojo {

MOJO_MATH_1(sqrt)
MOJO_MATH_1(cbrt)
MOJO_MATH_1(exp)
MOJO_MATH_1(exp2)
MOJO_MATH_1(expm1)
MOJO_MATH_1(log)
MOJO_MATH_1(log2)
MOJO_MATH_1(log10)
MOJO_MATH_1(log1p)
MOJO_MATH_1(sin)
MOJO_MATH_1(cos)
MOJO_MATH_1(tan)
MOJO_MATH_1(asin)
MOJO_MATH_1(acos)
MOJO_MATH_1(atan)
MOJO_MATH_1(sinh)
MOJO_MATH_1(cosh)
MOJO_MATH_1(tanh)
MOJO_MATH_1(erf)
MOJO_MATH_1(erfc)
MOJO_MATH_1(floor)
MOJO_MATH_1(ceil)
MOJO_MATH_1(round)
MOJO_MATH_1(trunc)
MOJO_MATH_1(rint)
MOJO_MATH_1(fabs)
MOJO_MATH_2(pow)
MOJO_MATH_2(atan2)
MOJO_MATH_2(fmod)
MOJO_MATH_2(fmin)
MOJO_MATH_2(fmax)
MOJO_MATH_2(hypot)
MOJO_MATH_2(copysign)

MOJO_DEVICE float fma(float a, float b, float c) { return MOJO_MATH(fmaf)(a, b, c); }
MOJO_DEVICE double fma(double a, double b, double c) { return MOJO_MATH(fma)(a, b, c); }
MOJO_DEVICE float rsqrt(float a) { return 1.0f / sqrt(a); }
MOJO_DEVICE double rsqrt(double a) { return 1.0 / sqrt(a); }

template <class T>
MOJO_DEVICE T abs(T a) {
  return a < T(0) ? T(-a) : a == T(0) ? T(0) : a;  // -0 becomes 0
}
// As the operators: of a comparison with NaN, the first argument. fmin and fmax skip NaN.
template <class T>
MOJO_DEVICE T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
MOJO_DEVICE T max(T a, T b) {
  return a < b ? b : a;
}
template <class T>
MOJO_DEVICE T clamp(T a, T low, T high) {
  return mojo::min(mojo::max(a, low), high);
}

MOJO_DEVICE bool isnan(float a) { return a != a; }
MOJO_DEVICE bool isnan(double a) { return a != a; }
MOJO_DEVICE bool isinf(float a) { return a - a != a - a && a == a; }
MOJO_DEVICE bool isinf(double a) { return a - a != a - a && a == a; }

// The same bits as another type of that size.
template <class To, class From>
MOJO_DEVICE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "types of one size");
  To to;
#if MOJO_ON_GPU
  memcpy(&to, &from, sizeof(To));
#else
  __builtin_memcpy(&to, &from, sizeof(To));
#endif
  return to;
}

}  // namespace mojo

#undef MOJO_MATH_1
#undef MOJO_MATH_2
#undef MOJO_MATH
