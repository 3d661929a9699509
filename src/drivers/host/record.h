// What it is: Record, what one Queue::record stands for, RecordPool, where they come from, and DeviceClock.
// Ordering: `complete` happens before a `done` that answers true, and so does all that its queue ran before it.
// Threads: any; a Record is counted and never unmapped before its pool. Errors: acquire returns null out of memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/small_lock.h"

namespace mojo::host {

class QueueCore;

struct alignas(64) Record {
  // Bits of `word`; the rest of it counts pokes, which wake host waiters without completing anything.
  static constexpr std::uint32_t complete_bit = 1, host_waits_bit = 2, dropped_bit = 4, poke = 8;

  std::atomic<std::uint32_t> refs{0};
  std::atomic<std::uint32_t> word{0};
  std::atomic<std::uintptr_t> waiters{0};  // parked queues, linked by QueueCore::wait_next, or `closed`
  std::uint64_t time = 0;                  // device nanoseconds, written before completion; 0 without timing
  bool timing = false;
  const QueueCore* recorded_on = nullptr;  // compared, never dereferenced, and only while the record is pending
  // The random schedule's view, under its lock: the record has been put in the decided order.
  bool decided = false;
  QueueCore* decided_waiters = nullptr;
  Record* next_free = nullptr;

  static constexpr std::uintptr_t closed = 1;

  bool done() const noexcept { return (word.load(std::memory_order_acquire) & complete_bit) != 0; }
  bool dropped() const noexcept { return (word.load(std::memory_order_acquire) & dropped_bit) != 0; }
  void add_ref() noexcept { refs.fetch_add(1, std::memory_order_relaxed); }
  // Makes a record that nobody else refers to ready for its next use.
  void reset(const QueueCore* queue, bool timed, std::uint32_t references) noexcept;
  // Parks `queue` on this record; false if it is complete already.
  bool add_waiter(QueueCore& queue) noexcept;
  // Marks it complete and returns the queues that waited, oldest first, linked by wait_next.
  QueueCore* complete(bool was_dropped) noexcept;
};

class RecordPool {
 public:
  Record* acquire() noexcept;  // without a reference; reset is the caller's
  void release(Record* record) noexcept;

 private:
  static constexpr int records_a_slab = 64;
  base::SmallLock lock_;
  Record* free_ = nullptr;
  std::vector<std::unique_ptr<Record[]>> slabs_;
};

// Monotonic nanoseconds that never repeat, so that two records around one small operation differ.
class DeviceClock {
 public:
  std::uint64_t now() noexcept;

 private:
  std::atomic<std::uint64_t> last_{0};
};

std::uint64_t monotonic_nanoseconds() noexcept;

}  // namespace mojo::host
