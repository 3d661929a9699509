// What it is: Op, one queued operation with its arguments inline, and OpPool, where nodes come from.
// Ordering: none of its own. Threads: OpPool any; an Op belongs to the list it is on.
// Errors: OpPool::take_chunk returns null when the host is out of memory.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/small_lock.h"
#include "driver/driver.h"

namespace mojo::host {

class QueueCore;
struct LaunchState;
struct Record;
struct ValueSlot;

enum class OpKind : std::uint8_t { nop, host_task, launch, copy, fill, record, wait, wait_value, write_value, delay };

// One cache line, so that an enqueue touches one line of the node and one of the queue.
struct alignas(64) Op {
  Op() noexcept : next_chunk(nullptr) {}

  Op* next = nullptr;
  QueueCore* owner = nullptr;  // set where the op runs on behalf of another queue (the random schedule's executor)
  std::uint64_t tag = 0;
  OpKind kind = OpKind::nop;
  std::uint8_t width = 0;  // fill
  bool abandoned = false;  // wait_value: decided because the value was abandoned
  union {
    driver::HostTask task;
    struct {
      void* dst;
      const void* src;
      std::uint64_t bytes;
    } copy;
    struct {
      void* dst;
      std::uint64_t bytes, pattern;
    } fill;
    LaunchState* launch;
    Record* record;
    struct {
      ValueSlot* slot;
      std::uint64_t value;
    } value;
    std::uint64_t nanoseconds;
    Op* next_chunk;  // while in the pool
  };
};
static_assert(sizeof(Op) == 64);

// Hands nodes out and takes them back in chains of `chunk` nodes, one lock for each chain.
class OpPool {
 public:
  static constexpr int chunk = 8;

  // A chain of `chunk` nodes linked by `next`, or null.
  Op* take_chunk() noexcept;
  // Takes back a chain of exactly `chunk` nodes.
  void give_chunk(Op* chain) noexcept;
  // Takes back a chain of any length.
  void give(Op* chain) noexcept;

 private:
  static constexpr int chunks_a_slab = 32;

  base::SmallLock lock_;
  Op* chunks_ = nullptr;
  Op* loose_ = nullptr;
  int loose_count_ = 0;
  std::vector<std::unique_ptr<Op[]>> slabs_;  // grown under the lock: rare
};

}  // namespace mojo::host
