#include "drivers/host/record.h"

#include <time.h>

#include <mutex>
#include <new>

#include "drivers/host/queue_core.h"

namespace mojo::host {

void Record::reset(const QueueCore* queue, bool timed, std::uint32_t references) noexcept {
  refs.store(references, std::memory_order_relaxed);
  word.store(0, std::memory_order_relaxed);
  waiters.store(0, std::memory_order_relaxed);
  time = 0;
  timing = timed;
  recorded_on = queue;
  decided = false;
  decided_waiters = nullptr;
}

bool Record::add_waiter(QueueCore& queue) noexcept {
  std::uintptr_t head = waiters.load(std::memory_order_acquire);
  do {
    if (head == closed) return false;
    queue.wait_next = reinterpret_cast<QueueCore*>(head);
  } while (!waiters.compare_exchange_weak(head, reinterpret_cast<std::uintptr_t>(&queue), std::memory_order_acq_rel,
                                          std::memory_order_acquire));
  return true;
}

QueueCore* Record::complete(bool was_dropped) noexcept {
  const std::uint32_t before =
      word.fetch_or(complete_bit | (was_dropped ? dropped_bit : 0u), std::memory_order_acq_rel);
  // After the word, so that a queue that finds the list closed also finds the record done.
  std::uintptr_t head = waiters.exchange(closed, std::memory_order_acq_rel);
  if ((before & host_waits_bit) != 0) word.notify_all();
  QueueCore* oldest = nullptr;
  for (auto* queue = reinterpret_cast<QueueCore*>(head); queue != nullptr;) {
    QueueCore* next = queue->wait_next;
    queue->wait_next = oldest;
    oldest = queue;
    queue = next;
  }
  return oldest;
}

Record* RecordPool::acquire() noexcept {
  std::lock_guard guard(lock_);
  if (free_ == nullptr) {
    try {
      auto slab = std::make_unique<Record[]>(records_a_slab);
      Record* records = slab.get();
      slabs_.push_back(std::move(slab));
      for (int i = 0; i < records_a_slab; ++i) {
        records[i].next_free = free_;
        free_ = records + i;
      }
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  Record* record = free_;
  free_ = record->next_free;
  if (free_ != nullptr) __builtin_prefetch(free_, 1);  // a worker wrote it last
  return record;
}

void RecordPool::release(Record* record) noexcept {
  if (record->refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  std::lock_guard guard(lock_);
  record->next_free = free_;
  free_ = record;
}

std::uint64_t monotonic_nanoseconds() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

std::uint64_t DeviceClock::now() noexcept {
  std::uint64_t now = monotonic_nanoseconds();
  std::uint64_t last = last_.load(std::memory_order_relaxed);
  do {
    if (now <= last) now = last + 1;
  } while (!last_.compare_exchange_weak(last, now, std::memory_order_relaxed));
  return now;
}

}  // namespace mojo::host
