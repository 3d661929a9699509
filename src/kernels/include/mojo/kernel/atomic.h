// What it is: atomic operations on global and shared memory: add, min, max, exchange, compare-exchange, load, store.
// Ordering: relaxed: the operation is whole, and orders nothing else. Threads: device code, any of the device.
// Errors: none. Each returns the value that was there before.
#pragma once

#include "mojo/kernel/math.h"
#include "mojo/kernel/platform.h"

namespace mojo {
namespace platform {

template <int size>
struct Word;
template <>
struct Word<4> {
  using type = unsigned int;
};
template <>
struct Word<8> {
  using type = unsigned long long;
};

template <class T>
MOJO_DEVICE T atomic_load(T* at) {
  using Bits = typename Word<sizeof(T)>::type;
#if MOJO_ON_GPU
  const Bits bits = *reinterpret_cast<volatile Bits*>(at);
  return bit_cast<T>(bits);
#else
  return bit_cast<T>(__atomic_load_n(reinterpret_cast<Bits*>(at), __ATOMIC_RELAXED));
#endif
}

// Writes `desired` if `expected` is there, bit by bit; gives what was there.
template <class T>
MOJO_DEVICE T compare_exchange(T* at, T expected, T desired) {
  using Bits = typename Word<sizeof(T)>::type;
  Bits seen = bit_cast<Bits>(expected);
#if MOJO_ON_GPU
  return bit_cast<T>(::atomicCAS(reinterpret_cast<Bits*>(at), seen, bit_cast<Bits>(desired)));
#else
  __atomic_compare_exchange_n(reinterpret_cast<Bits*>(at), &seen, bit_cast<Bits>(desired), false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return bit_cast<T>(seen);
#endif
}

template <class T, class Change>
MOJO_DEVICE T atomic_change(T* at, Change change) {
  using Bits = typename Word<sizeof(T)>::type;
  T before = atomic_load(at);
  for (;;) {
    const T seen = compare_exchange(at, before, change(before));
    if (bit_cast<Bits>(seen) == bit_cast<Bits>(before)) return before;
    before = seen;
  }
}

}  // namespace platform

template <class T>
MOJO_DEVICE T atomic_load(T* at) {
  return platform::atomic_load(at);
}

template <class T>
MOJO_DEVICE T atomic_compare_exchange(T* at, T expected, T desired) {
  return platform::compare_exchange(at, expected, desired);
}

template <class T>
MOJO_DEVICE T atomic_exchange(T* at, T value) {
  return platform::atomic_change(at, [value](T) { return value; });
}

template <class T>
MOJO_DEVICE T atomic_add(T* at, T value) {
  return platform::atomic_change(at, [value](T before) { return T(before + value); });
}
#if MOJO_ON_GPU
MOJO_DEVICE int atomic_add(int* at, int value) { return ::atomicAdd(at, value); }
MOJO_DEVICE unsigned atomic_add(unsigned* at, unsigned value) { return ::atomicAdd(at, value); }
MOJO_DEVICE unsigned long long atomic_add(unsigned long long* at, unsigned long long value) {
  return ::atomicAdd(at, value);
}
MOJO_DEVICE float atomic_add(float* at, float value) { return ::atomicAdd(at, value); }
#else
MOJO_DEVICE int atomic_add(int* at, int value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }
MOJO_DEVICE unsigned atomic_add(unsigned* at, unsigned value) {
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
MOJO_DEVICE long long atomic_add(long long* at, long long value) {
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
MOJO_DEVICE unsigned long long atomic_add(unsigned long long* at, unsigned long long value) {
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
#endif

template <class T>
MOJO_DEVICE T atomic_min(T* at, T value) {
  return platform::atomic_change(at, [value](T before) { return value < before ? value : before; });
}

template <class T>
MOJO_DEVICE T atomic_max(T* at, T value) {
  return platform::atomic_change(at, [value](T before) { return before < value ? value : before; });
}

}  // namespace mojo
