// How a worker runs one queue: batches of operations until the queue is empty, parks, is closed, or must let others
// run.
#include <algorithm>
#include <cstring>
#include <utility>

#include "drivers/host/random_schedule.h"
#include "drivers/host/scheduler.h"

namespace mojo::host {
namespace {

// `pattern` repeated, at any alignment.
void fill_bytes(void* dst, std::uint64_t bytes, std::uint64_t pattern, std::uint8_t width) noexcept {
  auto* out = static_cast<unsigned char*>(dst);
  if (width == 1 || pattern == 0) {
    std::memset(out, static_cast<int>(pattern & 0xff), bytes);
    return;
  }
  if (bytes == 0) return;
  constexpr std::uint64_t block = 4096;
  std::memcpy(out, &pattern, width);  // the low bytes: little-endian hosts only, as everything here
  std::uint64_t done = width;
  while (done < bytes && done < block) {
    const std::uint64_t step = std::min(done, bytes - done);
    std::memcpy(out + done, out, step);
    done += step;
  }
  while (done < bytes) {
    const std::uint64_t step = std::min(done, bytes - done) < block ? std::min(done, bytes - done) : block;
    std::memcpy(out + done, out, step);
    done += step;
  }
}

}  // namespace

void Scheduler::complete_record(Record* record, bool dropped, bool wake) noexcept {
  if (dropped) {
    if (RandomSchedule* schedule = random()) schedule->record_dropped(*record);
  }
  resume(record->complete(dropped), wake);
  records.release(record);
}

void Scheduler::store_value(ValueSlot& slot, std::uint64_t value, bool wake) noexcept {
  resume(values.store(slot, value, true), wake);
}

void Scheduler::abandon_value(ValueSlot& slot, const Status& why) noexcept {
  resume(values.abandon(slot, why), true);
  if (RandomSchedule* schedule = random()) schedule->value_abandoned(slot);
}

void Scheduler::retire_value(ValueSlot& slot) noexcept {
  resume(values.retire(slot), true);
  if (RandomSchedule* schedule = random()) schedule->value_abandoned(slot);
}

void Scheduler::drop(Op* chain) noexcept {
  for (Op* op = chain; op != nullptr; op = op->next) {
    switch (op->kind) {
      case OpKind::host_task:
        if (op->task.drop != nullptr) op->task.drop(op->task.state);
        break;
      case OpKind::launch: launches.unref(op->launch); break;
      case OpKind::record: complete_record(op->record, true, true); break;
      case OpKind::wait:
        if (op->record != nullptr) records.release(op->record);
        break;
      case OpKind::wait_value:
      case OpKind::write_value: values.release(op->value.slot); break;
      default: break;
    }
    if (op->owner != nullptr) std::exchange(op->owner, nullptr)->unref();
  }
  ops.give(chain);
}

void Scheduler::execute_wait_value(QueueCore& queue, Op& op) noexcept {
  if (op.abandoned) {
    Status why;
    {
      std::lock_guard guard(op.value.slot->lock);
      why = op.value.slot->why;
    }
    queue.report_failure(op.tag, std::move(why));
    op.abandoned = false;
  }
  values.release(op.value.slot);
}

void Scheduler::execute(QueueCore& queue, Op& op, bool more) noexcept {
  switch (op.kind) {
    case OpKind::host_task: {
      Status status;
      {
        driver::HostTaskScope scope;
        status = op.task.run(op.task.state);
      }
      if (!status.ok()) [[unlikely]]
        queue.report_failure(op.tag, std::move(status));
      break;
    }
    case OpKind::launch: execute_launch(queue, op); break;
    case OpKind::copy: std::memmove(op.copy.dst, op.copy.src, op.copy.bytes); break;
    case OpKind::fill: fill_bytes(op.fill.dst, op.fill.bytes, op.fill.pattern, op.width); break;
    case OpKind::record:
      if (op.record->timing) op.record->time = clock.now();
      complete_record(op.record, false, more);
      break;
    case OpKind::wait:
      if (op.record != nullptr) records.release(op.record);
      break;
    case OpKind::wait_value: execute_wait_value(queue, op); break;
    case OpKind::write_value:
      if (op.owner != nullptr) {
        // The random schedule has taken the store into account when it was decided.
        static_cast<void>(values.store(*op.value.slot, op.value.value, false));
      } else {
        store_value(*op.value.slot, op.value.value, more);
      }
      values.release(op.value.slot);
      break;
    case OpKind::delay:
    case OpKind::nop: break;
  }
}

// Whether the queue is parked now: then it must not be touched again. `bail` if it is closed instead.
bool Scheduler::park(QueueCore& queue, Op* op, bool& bail) noexcept {
  if (op->kind == OpKind::wait && (op->record == nullptr || op->record->done())) return false;
  std::lock_guard guard(queue.lock);
  if (queue.closed.load(std::memory_order_relaxed)) {
    bail = true;
    return false;
  }
  if (const Resume how = std::exchange(queue.resume, Resume::none); how != Resume::none) {
    op->abandoned = how == Resume::abandoned;
    return false;
  }
  // Before the registration, whose effect may come at once; it is taken back if there is nothing to wait for.
  queue.active = op;
  queue.state = QueueState::parked;
  bool waits = false;
  if (op->kind == OpKind::wait) {
    waits = op->record->add_waiter(queue);
  } else if (op->kind == OpKind::delay) {
    waits = op->nanoseconds != 0 && add_timer(queue, op->nanoseconds);
  } else {
    const Resume how = values.park(*op->value.slot, op->value.value, queue);
    op->abandoned = how == Resume::abandoned;
    waits = how == Resume::none;
  }
  if (waits) return true;
  queue.active = nullptr;
  queue.state = QueueState::running;
  return false;
}

void Scheduler::recycle(Op* op, Worker& worker) noexcept {
  op->next = worker.free_ops;
  worker.free_ops = op;
  if (++worker.free_count == OpPool::chunk) {
    ops.give_chunk(worker.free_ops);
    worker.free_ops = nullptr;
    worker.free_count = 0;
  }
}

// The queue is closed: drops what this worker had taken and lets go of it.
void Scheduler::leave(QueueCore& queue, Op* rest) noexcept {
  drop(rest);
  Op* late = nullptr;
  {
    std::lock_guard guard(queue.lock);
    late = queue.take_inbox();
    queue.state = QueueState::idle;
  }
  drop(late);
  queue.wake_host_waiters();
  queue.unref();
}

// Puts a queue that has more to do back on the ready list, behind others; false if it has nothing, or is closed.
bool Scheduler::requeue(QueueCore& queue, Op* rest) noexcept {
  {
    std::lock_guard guard(queue.lock);
    if (queue.closed.load(std::memory_order_relaxed) || (rest == nullptr && queue.inbox_head == nullptr)) return false;
    queue.active = rest;
    queue.state = QueueState::ready;
  }
  push_ready(queue, false);
  return true;
}

// Around an operation that the random schedule's executor runs for `owner`: a close of that queue waits for its end. False
// if it is closed already.
bool Scheduler::begin_for(QueueCore& owner) noexcept {
  std::lock_guard guard(owner.lock);
  if (owner.closed.load(std::memory_order_relaxed)) return false;
  owner.executing = true;
  return true;
}

void Scheduler::end_for(QueueCore& owner) noexcept {
  bool closed = false;
  {
    std::lock_guard guard(owner.lock);
    owner.executing = false;
    closed = owner.closed.load(std::memory_order_relaxed);
  }
  if (closed) owner.wake_host_waiters();
}

void Scheduler::run(QueueCore* queue, Worker& worker) noexcept {
  QueueCore& q = *queue;
  Op* op = nullptr;
  {
    std::lock_guard guard(q.lock);
    q.state = QueueState::running;
    op = std::exchange(q.active, nullptr);
    if (op == nullptr) op = q.take_work();
  }
  if (q.closed.load(std::memory_order_relaxed)) return leave(q, op);
  const int own_level = level(q.priority);
  std::uint64_t done = q.completed.load(std::memory_order_relaxed);
  int budget = slice;
  for (;;) {
    while (op != nullptr) {
      if (q.closed.load(std::memory_order_relaxed)) [[unlikely]]
        return leave(q, op);
      if ((op->kind == OpKind::wait || op->kind == OpKind::wait_value || op->kind == OpKind::delay) && !q.is_executor) {
        bool bail = false;
        if (park(q, op, bail)) return;
        if (bail) return leave(q, op);
      }
      Op* const next = op->next;
      QueueCore* const owner = op->owner;
      const std::uint64_t tag = op->tag;
      if (owner == nullptr) [[likely]] {
        // With nothing more to do, this worker takes what it makes ready itself, instead of waking another for it.
        execute(q, *op, next != nullptr || q.enqueued.load(std::memory_order_relaxed) != done + 1);
        recycle(op, worker);
        if (tag != 0) q.completed_tag.store(tag, std::memory_order_release);
      } else if (!begin_for(*owner)) {
        op->next = nullptr;
        drop(op);
      } else {
        execute(*owner, *op, true);
        op->owner = nullptr;
        recycle(op, worker);
        owner->complete(owner->completed.load(std::memory_order_relaxed) + 1);
        end_for(*owner);
        owner->unref();
      }
      q.complete(++done);
      op = next;
      const int best = best_level_.load(std::memory_order_relaxed);
      if (best <= own_level) [[unlikely]] {
        if (best < own_level || --budget <= 0) {
          if (requeue(q, op)) return;
          budget = slice;
        }
      }
    }
    const auto take = [&](bool last) {
      std::lock_guard guard(q.lock);
      if (q.free_ops == nullptr) {
        q.free_ops = std::exchange(worker.free_ops, nullptr);
        worker.free_count = 0;
      }
      op = q.take_work();
      // While this worker lingered, the random schedule's executor may have run operations of this queue.
      if (op != nullptr) done = q.completed.load(std::memory_order_relaxed);
      if (op == nullptr && last) q.state = QueueState::idle;
    };
    take(false);
    if (op == nullptr) {
      // Before the queue is seen idle: whoever makes it ready then need not wake another worker.
      start_searching(worker);
      static_cast<void>(spin(&q, done));
      take(true);
    }
    if (op == nullptr) {
      if (q.closed.load(std::memory_order_relaxed)) q.wake_host_waiters();  // `close` waits for this
      q.unref();
      return;
    }
    // Others that are ready may have counted on this worker to come free.
    stop_searching(worker);
    if (ready_count_.load(std::memory_order_seq_cst) != 0) wake_if_needed();
    // The only worker there is sees to the clock between batches.
    const std::uint64_t alarm = next_deadline_.load(std::memory_order_relaxed);
    if (alarm != ~std::uint64_t{0} && alarm <= monotonic_nanoseconds() && requeue(q, op)) [[unlikely]]
      return;
  }
}

}  // namespace mojo::host
