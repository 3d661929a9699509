// What it is: Vector<T, N>, N neighbours that are loaded and stored at once.
// Ordering: none. Threads: device code. Errors: the address of `load` and `store` is aligned to N elements, or undefined.
#pragma once

#include "mojo/kernel/platform.h"

namespace mojo {

template <class T, int N>
struct alignas(sizeof(T) * N <= 16 ? sizeof(T) * N : 16) Vector {
  static_assert(N > 0 && (N & (N - 1)) == 0, "a power of two");
  T lane[N];

  MOJO_DEVICE T& operator[](int i) { return lane[i]; }
  MOJO_DEVICE const T& operator[](int i) const { return lane[i]; }
};

template <int N, class T>
MOJO_DEVICE Vector<T, N> load(const T* from) {
#if MOJO_ON_GPU
  return *reinterpret_cast<const Vector<T, N>*>(from);
#else
  Vector<T, N> value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
#endif
}

template <int N, class T>
MOJO_DEVICE void store(T* to, const Vector<T, N>& value) {
#if MOJO_ON_GPU
  *reinterpret_cast<Vector<T, N>*>(to) = value;
#else
  __builtin_memcpy(to, &value, sizeof value);
#endif
}

}  // namespace mojo
