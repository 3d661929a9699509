// What it is: Buffer<T>, a pointer to device memory and how many elements are there: 16 bytes, copied as they are.
// Ordering: none. Threads: device code. Errors: an index out of range is undefined, as for a pointer.
#pragma once

#include "mojo/kernel/platform.h"

namespace mojo {

template <class T>
struct Buffer {
  T* pointer;
  uint64 count;

  MOJO_DEVICE T& operator[](uint64 i) const { return pointer[i]; }
  MOJO_DEVICE T* data() const { return pointer; }
  MOJO_DEVICE uint64 size() const { return count; }
  MOJO_DEVICE T* begin() const { return pointer; }
  MOJO_DEVICE T* end() const { return pointer + count; }
  MOJO_DEVICE operator Buffer<const T>() const { return {pointer, count}; }
};

template <class T>
struct Buffer<const T> {
  const T* pointer;
  uint64 count;

  MOJO_DEVICE const T& operator[](uint64 i) const { return pointer[i]; }
  MOJO_DEVICE const T* data() const { return pointer; }
  MOJO_DEVICE uint64 size() const { return count; }
  MOJO_DEVICE const T* begin() const { return pointer; }
  MOJO_DEVICE const T* end() const { return pointer + count; }
};

static_assert(sizeof(Buffer<float>) == 16 && sizeof(void*) == 8, "what the host passes");

}  // namespace mojo
