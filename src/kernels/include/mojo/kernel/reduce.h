// What it is: reductions over a block: each thread gives a value, each gets the result. For any block size.
// Ordering: holds barriers, so all threads of the block call it or none; it orders as barrier() does. The tree of
//   additions depends on the block's size alone, so results repeat, and are those of every device.
// Threads: device code. Errors: none.
#pragma once

#include "mojo/kernel/index.h"
#include "mojo/kernel/math.h"
#include "mojo/kernel/platform.h"

namespace mojo {

// combine(a, b) is associative enough.
template <class T, class Combine>
MOJO_DEVICE T block_reduce(T value, Combine combine) {
  MOJO_SHARED T slots[1024];
  const unsigned me = linear_thread_index(), size = linear_block_size();
  slots[me] = value;
  barrier();
  unsigned width = 1;
  while (width < size) width *= 2;
#if MOJO_ON_GPU
  for (width /= 2; width > 0; width /= 2) {
    if (me < width && me + width < size) slots[me] = combine(slots[me], slots[me + width]);
    barrier();
  }
#else
  // The same tree by one thread: a step across barriers costs more here than the arithmetic.
  if (me == 0) {
    for (width /= 2; width > 0; width /= 2) {
      for (unsigned i = 0; i < width && i + width < size; ++i) slots[i] = combine(slots[i], slots[i + width]);
    }
  }
  barrier();
#endif
  const T result = slots[0];
  barrier();  // before the slots are used again
  return result;
}

template <class T>
MOJO_DEVICE T block_sum(T value) {
  return block_reduce(value, [](T a, T b) { return T(a + b); });
}
template <class T>
MOJO_DEVICE T block_min(T value) {
  return block_reduce(value, [](T a, T b) { return b < a ? b : a; });
}
template <class T>
MOJO_DEVICE T block_max(T value) {
  return block_reduce(value, [](T a, T b) { return a < b ? b : a; });
}

}  // namespace mojo
