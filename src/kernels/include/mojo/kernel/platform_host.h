// What it is: the platform of the host device. A block is a loop over its threads in one function, or, if the kernel
//   uses barriers, one stack for each of its threads; either way one thread of the system runs it.
// Ordering: as platform.h. Threads: where a thread is, is kept per thread of the system. Errors: none.
#pragma once

#include "mojo/kernel/host_abi.h"
#include "mojo/kernel/host_parameter.h"

// inline: what no entry uses is not there, barriers included.
#define MOJO_KERNEL inline
#define MOJO_DEVICE inline
#define MOJO_SHARED static thread_local

#if defined(__SANITIZE_THREAD__)
#define MOJO_SANITIZE_THREAD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MOJO_SANITIZE_THREAD 1
#endif
#endif

namespace mojo::platform {

// Static, and its address is never taken, so the compiler knows that no store through a pointer changes it.
static thread_local unsigned thread_x, thread_y, thread_z, block_x, block_y, block_z;
static thread_local unsigned long long index_x;  // block_x * size_x + thread_x
static thread_local unsigned size_x, size_y, size_z, count_x, count_y, count_z;
static thread_local const MojoHostWork* work;

MOJO_DEVICE unsigned thread_index(int axis) { return axis == 0 ? thread_x : axis == 1 ? thread_y : thread_z; }
MOJO_DEVICE unsigned block_size(int axis) { return axis == 0 ? size_x : axis == 1 ? size_y : size_z; }
MOJO_DEVICE unsigned block_index(int axis) { return axis == 0 ? block_x : axis == 1 ? block_y : block_z; }
MOJO_DEVICE unsigned block_count(int axis) { return axis == 0 ? count_x : axis == 1 ? count_y : count_z; }
MOJO_DEVICE unsigned long long global_index(int axis) {
  return axis == 0 ? index_x
                   : static_cast<unsigned long long>(block_index(axis)) * block_size(axis) + thread_index(axis);
}
MOJO_DEVICE void* shared_memory() { return work->shared_memory; }
MOJO_DEVICE void fence() {
#if defined(MOJO_SANITIZE_THREAD)
  // ThreadSanitizer does not know fences. An access that all of them make orders them for it.
  static unsigned all;
  __atomic_fetch_add(&all, 1u, __ATOMIC_SEQ_CST);
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

}  // namespace mojo::platform

// Exported, and there only if something calls it: so the driver learns whether a kernel needs stacks.
extern "C" __attribute__((noinline, visibility("default"))) inline void mojo_host_barrier() {
  using namespace mojo::platform;
  const unsigned x = thread_x, y = thread_y, z = thread_z;
  const unsigned long long index = index_x;
  work->barrier(work->state);
  thread_x = x;
  thread_y = y;
  thread_z = z;
  index_x = index;
}

namespace mojo::platform {

MOJO_DEVICE void barrier() {
  if (size_x * size_y * size_z > 1) mojo_host_barrier();
}

inline void enter(const MojoHostWork* given) {
  work = given;
  size_x = given->block[0], size_y = given->block[1], size_z = given->block[2];
  count_x = given->grid[0], count_y = given->grid[1], count_z = given->grid[2];
}

inline void enter_block(unsigned long long block) {
  block_x = static_cast<unsigned>(block % count_x);
  block_y = static_cast<unsigned>(block / count_x % count_y);
  block_z = static_cast<unsigned>(block / count_x / count_y);
}

template <class T>
inline T take(const unsigned char*& from) {
  T value;
  __builtin_memcpy(&value, from, sizeof(T));
  from += sizeof(T);
  return value;
}

// The threads of one row of a block. A function of its own, whose loop is written for the compiler: its variable is what
// global_index() gives, so that `if (i < n)` is a condition on the loop's own variable, by which GCC splits the loop in
// two and vectorises both; and the masks, which change nothing, tell that it does not overflow.
template <class Kernel, class... Arguments>
__attribute__((noinline)) void run_row(unsigned first, unsigned count, Kernel kernel, Arguments... arguments) {
  const unsigned begin = first & 0x3fffffff, end = begin + (count & 2047);
  for (unsigned i = begin; i < end; ++i) {
    thread_x = i - begin;
    index_x = i;
    kernel(arguments...);
  }
}

// The same where an index takes more than 32 bits.
template <class Kernel, class... Arguments>
__attribute__((noinline)) void run_far_row(unsigned long long first, unsigned count, Kernel kernel,
                                           Arguments... arguments) {
  for (unsigned i = 0; i < count; ++i) {
    thread_x = i;
    index_x = first + i;
    kernel(arguments...);
  }
}

// The blocks first <= b < last of a kernel without barriers.
struct Blocks {
  unsigned long long first, last;

  template <class Kernel, class... Arguments>
  __attribute__((always_inline)) void operator()(Kernel kernel, Arguments... arguments) const {
    for (unsigned long long block = first; block < last; ++block) {
      enter_block(block);
      const unsigned long long row = static_cast<unsigned long long>(block_x) * size_x;
      for (unsigned tz = 0; tz < size_z; ++tz) {
        thread_z = tz;
        for (unsigned ty = 0; ty < size_y; ++ty) {
          thread_y = ty;
          if (row + size_x <= 0x3fffffff) {
            run_row(static_cast<unsigned>(row), size_x, kernel, arguments...);
          } else {
            run_far_row(row, size_x, kernel, arguments...);
          }
        }
      }
    }
  }
};

// One thread of a block.
struct Thread {
  unsigned long long block;
  unsigned thread;

  template <class Kernel, class... Arguments>
  __attribute__((always_inline)) void operator()(Kernel kernel, Arguments... arguments) const {
    enter_block(block);
    thread_x = thread % size_x;
    thread_y = thread / size_x % size_y;
    thread_z = thread / size_x / size_y;
    index_x = static_cast<unsigned long long>(block_x) * size_x + thread_x;
    kernel(arguments...);
  }
};

template <auto kernel>
struct Entry;

template <class... Parameters, void (*kernel)(Parameters...)>
struct Entry<kernel> {
  static_assert((__is_trivially_copyable(Parameters) && ...), "a kernel's parameters are copied byte by byte");

  // Calls run(kernel, arguments...). A constructor with braces, since only there the order of evaluation is given.
  struct Call {
    template <class Run>
    __attribute__((always_inline)) Call(const Run& run, Parameters... arguments) {
      run(
          [](Parameters... values) __attribute__((always_inline)) { kernel(values...); }, arguments...);
    }
  };

  static void run_blocks(const MojoHostWork* given, unsigned long long first, unsigned long long last) {
    enter(given);
    [[maybe_unused]] const unsigned char* from = given->arguments;
    Call{Blocks{first, last}, take<Parameters>(from)...};
  }
  static void run_thread(const MojoHostWork* given, unsigned long long block, unsigned thread) {
    enter(given);
    [[maybe_unused]] const unsigned char* from = given->arguments;
    Call{Thread{block, thread}, take<Parameters>(from)...};
  }

  static constexpr MojoHostParameter parameters[sizeof...(Parameters) + 1] = {describe<Parameters>()..., {}};
  static constexpr MojoHostEntry entry{sizeof...(Parameters), parameters, run_blocks, run_thread};
};

}  // namespace mojo::platform

// Written by the driver after the source, once for each entry.
#define MOJO_HOST_ENTRY(name)                                                          \
  extern "C" {                                                                         \
  extern __attribute__((visibility("default"))) const MojoHostEntry mojo_entry_##name; \
  const MojoHostEntry mojo_entry_##name = mojo::platform::Entry<&name>::entry;         \
  }
