// What it is: where a thread is in its block and grid, the stride loop, the block's dynamic shared memory, the barrier.
// Ordering: barrier() alone orders anything: the accesses of the block's threads before it ahead of those after it.
// Threads: device code; barrier() must be reached by all threads of the block or by none. Errors: none.
#pragma once

#include "mojo/kernel/platform.h"

namespace mojo {

// thread_index() is thread_index(x); (y) and (z) likewise.
MOJO_DEVICE unsigned thread_index(Axis axis = x) { return platform::thread_index(axis); }
MOJO_DEVICE unsigned block_size(Axis axis = x) { return platform::block_size(axis); }
MOJO_DEVICE unsigned block_index(Axis axis = x) { return platform::block_index(axis); }
MOJO_DEVICE unsigned block_count(Axis axis = x) { return platform::block_count(axis); }

// Of the whole grid.
MOJO_DEVICE uint64 global_index(Axis axis = x) { return platform::global_index(axis); }
MOJO_DEVICE uint64 global_size(Axis axis = x) { return uint64{block_count(axis)} * block_size(axis); }

// The block's threads as a line, x fastest.
MOJO_DEVICE unsigned linear_thread_index() {
  return (thread_index(z) * block_size(y) + thread_index(y)) * block_size(x) + thread_index(x);
}
MOJO_DEVICE unsigned linear_block_size() { return block_size(x) * block_size(y) * block_size(z); }

MOJO_DEVICE void barrier() { platform::barrier(); }

// The launch's shared_memory_bytes, the same for all threads of a block; aligned to 16 bytes, not initialised.
template <class T>
MOJO_DEVICE T* shared_memory() {
  return static_cast<T*>(platform::shared_memory());
}

// for (auto i : mojo::stride(n)): the elements of 0 <= i < n that are this thread's, whatever grid and block are.
class stride {
 public:
  MOJO_DEVICE explicit stride(uint64 count) : count_(count) {}

  struct Sentinel {
    uint64 count;
  };
  class Iterator {
   public:
    MOJO_DEVICE Iterator() : at_(global_index()), step_(global_size()) {}
    MOJO_DEVICE uint64 operator*() const { return at_; }
    MOJO_DEVICE Iterator& operator++() {
      at_ += step_;
      return *this;
    }
    MOJO_DEVICE bool operator!=(Sentinel end) const { return at_ < end.count; }

   private:
    uint64 at_, step_;
  };
  MOJO_DEVICE Iterator begin() const { return {}; }
  MOJO_DEVICE Sentinel end() const { return {count_}; }

 private:
  uint64 count_;
};

}  // namespace mojo
