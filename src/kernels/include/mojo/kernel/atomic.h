// What it is: atomic operations on global and shared memory: add, min, max, exchange, compare-exchange, load, store; and
//   fence(), which orders memory where they meet.
// Ordering: the operations are relaxed: each is whole, and orders nothing else. fence() orders the thread's accesses before
//   it ahead of those after it, for all threads of the device: what was written ahead of a fence and then an atomic store or
//   add is seen, after a fence, by whoever has seen that store or add.
// Threads: device code, any of the device. Errors: types of other sizes than 4 and 8 bytes do not compile. Each operation
//   gives the value that was there before.
#pragma once

#include "mojo/kernel/math.h"
#include "mojo/kernel/platform.h"

namespace mojo {
namespace platform {

template <int size>
struct Word {
  static_assert(size == 4 || size == 8, "mojo: atomic operations are for types of 4 and 8 bytes, on every device");
};
template <>
struct Word<4> {
  using type = unsigned int;
};
template <>
struct Word<8> {
  using type = unsigned long long;
};

// A parameter of this type takes what converts to T, and does not say what T is.
template <class T>
struct Identity {
  using type = T;
};
template <class T>
using Value = typename Identity<T>::type;

template <class T>
MOJO_DEVICE T load_whole(const T* at) {
  using Bits = typename Word<sizeof(T)>::type;
#if MOJO_ON_GPU
  const Bits bits = *reinterpret_cast<const volatile Bits*>(at);
  return mojo::bit_cast<T>(bits);
#else
  return mojo::bit_cast<T>(__atomic_load_n(reinterpret_cast<const Bits*>(at), __ATOMIC_RELAXED));
#endif
}

template <class T>
MOJO_DEVICE void store_whole(T* at, T value) {
  using Bits = typename Word<sizeof(T)>::type;
#if MOJO_ON_GPU
  *reinterpret_cast<volatile Bits*>(at) = mojo::bit_cast<Bits>(value);
#else
  __atomic_store_n(reinterpret_cast<Bits*>(at), mojo::bit_cast<Bits>(value), __ATOMIC_RELAXED);
#endif
}

// Writes `desired` if `expected` is there, bit by bit; gives what was there.
template <class T>
MOJO_DEVICE T exchange_if(T* at, T expected, T desired) {
  using Bits = typename Word<sizeof(T)>::type;
  Bits seen = mojo::bit_cast<Bits>(expected);
#if MOJO_ON_GPU
  return mojo::bit_cast<T>(::atomicCAS(reinterpret_cast<Bits*>(at), seen, mojo::bit_cast<Bits>(desired)));
#else
  __atomic_compare_exchange_n(reinterpret_cast<Bits*>(at), &seen, mojo::bit_cast<Bits>(desired), false,
                              __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return mojo::bit_cast<T>(seen);
#endif
}

// Puts change(what is there) there.
template <class T, class Change>
MOJO_DEVICE T change_whole(T* at, Change change) {
  using Bits = typename Word<sizeof(T)>::type;
  T before = platform::load_whole(at);
  for (;;) {
    const T seen = platform::exchange_if(at, before, change(before));
    if (mojo::bit_cast<Bits>(seen) == mojo::bit_cast<Bits>(before)) return before;
    before = seen;
  }
}

}  // namespace platform

MOJO_DEVICE void fence() { platform::fence(); }

template <class T>
MOJO_DEVICE T atomic_load(const T* at) {
  return platform::load_whole(at);
}

template <class T>
MOJO_DEVICE void atomic_store(T* at, platform::Value<T> value) {
  platform::store_whole(at, value);
}

template <class T>
MOJO_DEVICE T atomic_compare_exchange(T* at, platform::Value<T> expected, platform::Value<T> desired) {
  return platform::exchange_if(at, expected, desired);
}

template <class T>
MOJO_DEVICE T atomic_exchange(T* at, platform::Value<T> value) {
  return platform::change_whole(at, [value](T) { return value; });
}

template <class T>
MOJO_DEVICE T atomic_add(T* at, platform::Value<T> value) {
  return platform::change_whole(at, [value](T before) { return T(before + value); });
}
// What the machine has an instruction for.
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
MOJO_DEVICE T atomic_min(T* at, platform::Value<T> value) {
  return platform::change_whole(at, [value](T before) { return value < before ? value : before; });
}

template <class T>
MOJO_DEVICE T atomic_max(T* at, platform::Value<T> value) {
  return platform::change_whole(at, [value](T before) { return before < value ? value : before; });
}

}  // namespace mojo
