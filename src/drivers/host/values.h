// What it is: ValueSlot, a 64-bit value that queues wait for (Device::allocate_value), and ValueTable, which owns them.
// Ordering: a store happens before the wait that it satisfies ends.
// Threads: any. A store returns the queues it satisfied; resuming them is the caller's, outside the lock.
// Errors: invalid_argument for an address that is not an allocated value.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/small_lock.h"
#include "mojo/status.h"

namespace mojo::host {

class QueueCore;

struct alignas(64) ValueSlot {
  static constexpr std::uint32_t live_magic = 0x4d56414c, dead_magic = 0xdead4d56;

  std::uint64_t value = 0;  // first: its address is the one that was given out; read and written atomically
  std::uint32_t magic = dead_magic;
  base::SmallLock lock;  // guards all below
  bool abandoned = false;
  std::uint32_t refs = 0;        // the allocation and each pending wait or write
  std::uint64_t logical = 0;     // what the random schedule has decided the value to be
  QueueCore* waiters = nullptr;  // parked queues, oldest first, linked by wait_next
  Status why;                    // of the abandonment
  ValueSlot* next_free = nullptr;
};

// What a parked queue finds when it goes on.
enum class Resume : std::uint8_t { none, satisfied, abandoned };

class ValueTable {
 public:
  Status allocate(std::uint64_t*& out) noexcept;
  // The slot of an address, with a reference added; null if it is not an allocated value.
  ValueSlot* acquire(const std::uint64_t* address) noexcept;
  void release(ValueSlot* slot) noexcept;

  // Each returns the queues whose waits ended, linked by wait_next.
  QueueCore* store(ValueSlot& slot, std::uint64_t value, bool logical_too) noexcept;
  QueueCore* abandon(ValueSlot& slot, const Status& why) noexcept;
  QueueCore* retire(ValueSlot& slot) noexcept;  // free_value
  // Under the slot's lock for the time of the call: parks `queue`, or says how its wait ended.
  Resume park(ValueSlot& slot, std::uint64_t value, QueueCore& queue) noexcept;
  // Abandons everything; the queues are linked as above.
  QueueCore* abandon_all(const Status& why) noexcept;

 private:
  static constexpr int slots_a_slab = 32;
  base::SmallLock lock_;
  ValueSlot* free_ = nullptr;
  std::vector<std::unique_ptr<ValueSlot[]>> slabs_;
};

}  // namespace mojo::host
