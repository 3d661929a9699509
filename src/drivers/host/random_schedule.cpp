#include "drivers/host/random_schedule.h"

#include <time.h>

#include <algorithm>
#include <new>
#include <utility>

#include "drivers/host/scheduler.h"

namespace mojo::host {
namespace {

// A query waits this long for the executor to get to what is decided already. Only a task that itself waits for the
// host takes longer, and then "not complete" is the answer that does not hang.
constexpr std::uint64_t query_patience_nanoseconds = 1'000'000'000;

// How long a program may stay away before its undecided operations are decided without it.
constexpr std::uint64_t tick_nanoseconds = 2'000'000'000;

bool value_reached(const Op& op, bool& abandoned) noexcept {
  ValueSlot& slot = *op.value.slot;
  std::lock_guard guard(slot.lock);
  if (slot.logical == op.value.value) return true;
  return abandoned = slot.abandoned;
}

}  // namespace

RandomSchedule::RandomSchedule(Scheduler& scheduler, QueueCore& executor, QueueCore& ticker, std::uint64_t seed)
    : scheduler_(scheduler),
      executor_(executor),
      ticker_(ticker),
      state_(seed),
      style_(static_cast<Style>(seed % styles)),
      starved_(static_cast<std::uint32_t>(1 + draw(4))) {}

std::uint64_t RandomSchedule::draw(std::uint64_t below) noexcept {  // splitmix64
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (z ^ (z >> 31)) % below;
}

RandomSchedule::Style RandomSchedule::style_now() noexcept {
  if (style_ != Style::mixed) return style_;
  if (picks_left_-- == 0) {
    picks_left_ = static_cast<std::uint32_t>(draw(24));
    mixed_style_ = static_cast<Style>(draw(styles - 1));
  }
  return mixed_style_;
}

int RandomSchedule::steps_after_enqueue() noexcept {
  switch (style_now()) {
    case Style::eager: return static_cast<int>(draw(4));
    case Style::lazy: return 0;
    case Style::bursty: return draw(8) == 0 ? static_cast<int>(draw(24)) : 0;
    case Style::starving:
    case Style::sticky: return static_cast<int>(draw(3));
    case Style::newest_first:
    case Style::mixed: break;
  }
  return static_cast<int>(draw(2));
}

void RandomSchedule::note_progress() noexcept {
  ++calls_;
  arm();
  progress_.fetch_add(1, std::memory_order_seq_cst);
  progress_.notify_all();
}

void RandomSchedule::arm() noexcept {
  if (armed_ || ready_.empty()) return;
  const Status delayed = ticker_.enqueue(0, [](Op& op) {
    op.kind = OpKind::delay;
    op.nanoseconds = tick_nanoseconds;
  });
  const Status queued = ticker_.enqueue(0, [this](Op& op) {
    op.kind = OpKind::host_task;
    driver::HostTask task;
    task.run = [](void* self) noexcept {
      static_cast<RandomSchedule*>(self)->tick();
      return Status();
    };
    task.state = this;
    ::new (&op.task) driver::HostTask(task);
  });
  armed_ = delayed.ok() && queued.ok();
  calls_when_armed_ = calls_;
}

void RandomSchedule::tick() noexcept {
  std::lock_guard guard(mutex_);
  armed_ = false;
  if (scheduler_.random() != this) return;
  if (calls_ == calls_when_armed_) {
    while (decide_one()) {}
  }
  arm();
}

// Puts the queue where its next operation belongs: ready, blocked, or nowhere if nothing is pending.
void RandomSchedule::look_at(QueueCore& queue) noexcept {
  if (queue.in_ready_set || queue.blocked) return;
  const Op* head = nullptr;
  {
    std::lock_guard guard(queue.lock);
    if (queue.closed.load(std::memory_order_relaxed)) return;
    head = queue.inbox_head;
  }
  if (head == nullptr) return;
  if (head->kind == OpKind::wait && head->record != nullptr && !head->record->decided && !head->record->done()) {
    queue.blocked = true;
    queue.blocked_on = head->record;
    queue.wait_next = head->record->decided_waiters;
    head->record->decided_waiters = &queue;
    return;
  }
  bool abandoned = false;
  if (head->kind == OpKind::wait_value && !value_reached(*head, abandoned)) {
    queue.blocked = true;
    value_blocked_.push_back(&queue);
    return;
  }
  queue.in_ready_set = true;
  ready_.push_back(&queue);
}

void RandomSchedule::release_waiters(Record& record) noexcept {
  record.decided = true;
  for (QueueCore* queue = std::exchange(record.decided_waiters, nullptr); queue != nullptr;) {
    QueueCore* next = queue->wait_next;
    queue->wait_next = nullptr;
    queue->blocked = false;
    queue->blocked_on = nullptr;
    look_at(*queue);
    queue = next;
  }
}

void RandomSchedule::unblock_values() noexcept {
  for (std::size_t i = 0; i < value_blocked_.size();) {
    QueueCore& queue = *value_blocked_[i];
    bool reached = false, abandoned = false;
    {
      std::lock_guard guard(queue.lock);
      reached = queue.inbox_head == nullptr || value_reached(*queue.inbox_head, abandoned);
    }
    if (!reached) {
      ++i;
      continue;
    }
    value_blocked_.erase(value_blocked_.begin() + static_cast<std::ptrdiff_t>(i));
    queue.blocked = false;
    look_at(queue);
  }
}

std::size_t RandomSchedule::pick() noexcept {
  const std::size_t count = ready_.size();
  std::size_t index = draw(count);
  switch (style_now()) {
    case Style::starving:
      if (ready_[index]->turn == starved_ && draw(16) != 0) index = (index + 1) % count;
      break;
    case Style::sticky:
      if (draw(8) != 0) {
        const auto it = std::find(ready_.begin(), ready_.end(), last_);
        if (it != ready_.end()) index = static_cast<std::size_t>(it - ready_.begin());
      }
      break;
    case Style::newest_first:
      if (draw(4) != 0) {
        const auto newest = std::max_element(ready_.begin(), ready_.end(),
                                             [](const QueueCore* a, const QueueCore* b) { return a->turn < b->turn; });
        index = static_cast<std::size_t>(newest - ready_.begin());
      }
      break;
    default: break;
  }
  const auto delayed = [this](std::size_t i) {
    std::lock_guard guard(ready_[i]->lock);
    return ready_[i]->inbox_head != nullptr && ready_[i]->inbox_head->kind == OpKind::delay;
  };
  if (delayed(index) && draw(8) != 0) {
    for (std::size_t step = 1; step < count; ++step) {
      if (!delayed((index + step) % count)) return (index + step) % count;
    }
  }
  return index;
}

bool RandomSchedule::decide_one() noexcept {
  if (ready_.empty()) return false;
  const std::size_t index = pick();
  QueueCore& queue = *ready_[index];
  ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(index));
  queue.in_ready_set = false;
  Op* op = nullptr;
  {
    std::lock_guard guard(queue.lock);
    op = queue.inbox_head;
    if (op == nullptr) return true;  // closed meanwhile
    queue.inbox_head = op->next;
    if (op->next == nullptr) queue.inbox_tail = nullptr;
  }
  ++queue.decided;
  last_ = &queue;
  // After `submit` the executor may finish with the operation, so what it means is settled before.
  Record* const record = op->kind == OpKind::record ? op->record : nullptr;
  bool stored = false;
  if (op->kind == OpKind::wait_value) {
    static_cast<void>(value_reached(*op, op->abandoned));
  } else if (op->kind == OpKind::write_value) {
    std::lock_guard guard(op->value.slot->lock);
    op->value.slot->logical = op->value.value;
    stored = true;
  }
  if (record != nullptr) {
    record->add_ref();
    release_waiters(*record);
  }
  submit(queue, op);
  if (record != nullptr) scheduler_.records.release(record);
  if (stored) unblock_values();
  look_at(queue);
  return true;
}

void RandomSchedule::submit(QueueCore& owner, Op* op) noexcept {
  op->owner = &owner;
  op->next = nullptr;
  owner.add_ref();
  bool activate = false;
  {
    std::lock_guard guard(executor_.lock);
    executor_.append(op);
    if (executor_.state == QueueState::idle && !executor_.closed.load(std::memory_order_relaxed)) {
      executor_.state = QueueState::ready;
      executor_.add_ref();
      activate = true;
    }
  }
  if (activate) scheduler_.push_ready(executor_, true);
}

void RandomSchedule::after_enqueue(QueueCore& queue) noexcept {
  std::lock_guard guard(mutex_);
  if (queue.turn == 0) queue.turn = ++turns_;
  look_at(queue);
  for (int steps = steps_after_enqueue(); steps > 0 && decide_one(); --steps) {}
  note_progress();
}

bool RandomSchedule::finish(const std::atomic<std::uint64_t>& completed, std::uint64_t target) noexcept {
  const std::uint64_t deadline = monotonic_nanoseconds() + query_patience_nanoseconds;
  while (completed.load(std::memory_order_acquire) < target) {
    if (scheduler_.stopping() || monotonic_nanoseconds() > deadline) return false;
    const timespec pause{0, 20'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

bool RandomSchedule::poll(QueueCore& queue, std::uint64_t target) noexcept {
  {
    std::lock_guard guard(mutex_);
    ++calls_;
    for (std::uint64_t steps = draw(4); steps > 0 && queue.decided < target && decide_one(); --steps) {}
    if (queue.decided < target) return false;
  }
  return finish(queue.completed, target);
}

bool RandomSchedule::poll(Record& record) noexcept {
  {
    std::lock_guard guard(mutex_);
    ++calls_;
    for (std::uint64_t steps = draw(4); steps > 0 && !record.decided && decide_one(); --steps) {}
    if (!record.decided) return record.done();
  }
  const std::uint64_t deadline = monotonic_nanoseconds() + query_patience_nanoseconds;
  while (!record.done()) {
    if (scheduler_.stopping() || monotonic_nanoseconds() > deadline) return false;
    const timespec pause{0, 20'000};
    nanosleep(&pause, nullptr);
  }
  return true;
}

template <class Decided>
Status RandomSchedule::drive_until(Decided decided) noexcept {
  Scheduler::HostWait registered(scheduler_, progress_, 1);
  std::unique_lock guard(mutex_);
  ++calls_;
  while (!decided()) {
    if (decide_one()) continue;
    const std::uint32_t seen = progress_.load(std::memory_order_seq_cst);
    guard.unlock();
    if (scheduler_.stopping()) return scheduler_.stopped_status();
    progress_.wait(seen, std::memory_order_seq_cst);
    guard.lock();
  }
  return {};
}

Status RandomSchedule::drive(QueueCore& queue, std::uint64_t target) noexcept {
  return drive_until([&] { return queue.decided >= target || queue.closed.load(std::memory_order_acquire); });
}

Status RandomSchedule::drive(Record& record) noexcept {
  return drive_until([&] { return record.decided || record.done(); });
}

void RandomSchedule::value_stored(ValueSlot& slot, std::uint64_t value) noexcept {
  std::lock_guard guard(mutex_);
  static_cast<void>(scheduler_.values.store(slot, value, true));
  unblock_values();
  note_progress();
}

void RandomSchedule::value_abandoned(ValueSlot&) noexcept {
  std::lock_guard guard(mutex_);
  unblock_values();
  note_progress();
}

void RandomSchedule::record_dropped(Record& record) noexcept {
  std::lock_guard guard(mutex_);
  release_waiters(record);
  note_progress();
}

void RandomSchedule::forget(QueueCore& queue) noexcept {
  std::lock_guard guard(mutex_);
  std::erase(ready_, &queue);
  std::erase(value_blocked_, &queue);
  if (queue.blocked_on != nullptr) {
    for (QueueCore** link = &queue.blocked_on->decided_waiters; *link != nullptr; link = &(*link)->wait_next) {
      if (*link == &queue) {
        *link = queue.wait_next;
        break;
      }
    }
    queue.blocked_on = nullptr;
  }
  queue.blocked = queue.in_ready_set = false;
  if (last_ == &queue) last_ = nullptr;
  note_progress();
}

}  // namespace mojo::host
