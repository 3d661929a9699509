// What it is: RandomSchedule, the adversarial schedule: an order of operations drawn from a seed (CONTRACT M-10).
//   Operations wait undecided on their queues. Calls of the host (an enqueue, a query, a wait) decide some: each step
//   picks one queue whose next operation could run by now, as far as the *decided* ones go, and appends it to one
//   decided order, which one executor queue runs asynchronously. So the order is a function of the seed and of the
//   sequence of calls, whatever the threads do, and whatever the program has not ordered may come out in any order.
//   Only a program that makes no call for two seconds (it may be waiting for what a task does) is helped on by the
//   clock.
// Ordering: that of driver.h and nothing more. Delays are virtual: a delayed queue is picked late, or when nothing
//   else can.
// Threads: any; only with one calling thread is the order repeatable.
// Errors: a host wait returns shut_down when the driver stops.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "drivers/host/queue_core.h"
#include "mojo/status.h"

namespace mojo::host {

class RandomSchedule {
 public:
  // `executor` and `ticker` are queues of the scheduler's that nobody else enqueues on.
  RandomSchedule(Scheduler& scheduler, QueueCore& executor, QueueCore& ticker, std::uint64_t seed);

  void after_enqueue(QueueCore& queue) noexcept;
  bool poll(QueueCore& queue, std::uint64_t target) noexcept;
  bool poll(Record& record) noexcept;
  // Decides until the first `target` operations of `queue` (the record) are in the order; blocks the host where that
  // takes a value which is yet to be signalled, or a record which is yet to be enqueued.
  Status drive(QueueCore& queue, std::uint64_t target) noexcept;
  Status drive(Record& record) noexcept;
  // A host thread has stored, or abandoned, a value.
  void value_stored(ValueSlot& slot, std::uint64_t value) noexcept;
  void value_abandoned(ValueSlot& slot) noexcept;
  // A record has been dropped with its queue: whoever waits for it goes on.
  void record_dropped(Record& record) noexcept;
  // The queue is closed; its pending operations are about to be dropped.
  void forget(QueueCore& queue) noexcept;

 private:
  // What kinds of schedule there are; the seed picks one. Each finds other mistakes than the rest.
  enum class Style : std::uint8_t { eager, lazy, bursty, starving, sticky, newest_first, mixed };
  static constexpr int styles = 7;

  std::uint64_t draw(std::uint64_t below) noexcept;
  Style style_now() noexcept;
  int steps_after_enqueue() noexcept;
  void note_progress() noexcept;
  void arm() noexcept;
  void tick() noexcept;
  void look_at(QueueCore& queue) noexcept;
  void release_waiters(Record& record) noexcept;
  void submit(QueueCore& owner, Op* op) noexcept;
  bool finish(const std::atomic<std::uint64_t>& completed, std::uint64_t target) noexcept;
  bool decide_one() noexcept;
  std::size_t pick() noexcept;
  void unblock_values() noexcept;
  template <class Decided>
  Status drive_until(Decided decided) noexcept;

  Scheduler& scheduler_;
  QueueCore& executor_;
  QueueCore& ticker_;
  std::mutex mutex_;  // guards all below and the queues' random fields
  std::uint64_t state_;
  Style style_;
  std::uint32_t turns_ = 0;
  std::uint32_t starved_;
  std::uint32_t picks_left_ = 0;  // mixed: until the style changes
  Style mixed_style_ = Style::eager;
  std::uint64_t calls_ = 0, calls_when_armed_ = 0;
  bool armed_ = false;             // a tick is on its way
  QueueCore* last_ = nullptr;      // sticky
  std::vector<QueueCore*> ready_;  // queues whose next operation could run; in an order that the calls determine
  std::vector<QueueCore*> value_blocked_;
  std::atomic<std::uint32_t> progress_{0};  // changes when something undecidable may have become decidable
};

}  // namespace mojo::host
