#include "drivers/host/queue_core.h"

#include "base/report.h"
#include "drivers/host/random_schedule.h"
#include "drivers/host/scheduler.h"

namespace mojo::host {

QueueCore::QueueCore(Scheduler& owner, int device_index, int clamped_priority)
    : device(device_index), priority(clamped_priority), scheduler(owner) {
  scheduler.register_queue(*this);
}

QueueCore::~QueueCore() {
  scheduler.unregister_queue(*this);
  scheduler.ops.give(free_ops);
}

Op* QueueCore::refill() noexcept { return free_ops = scheduler.ops.take_chunk(); }

Status QueueCore::closed_status() const {
  if (scheduler.stopping()) return scheduler.stopped_status();
  return Status(StatusCode::failed_precondition, "host driver: the queue has been destroyed");
}

Status QueueCore::no_memory_status() {
  return Status(StatusCode::out_of_memory, "host driver: no host memory for a queued operation");
}

void QueueCore::push_ready() noexcept { scheduler.push_ready(*this, true); }

void QueueCore::decide_some() noexcept { scheduler.random()->after_enqueue(*this); }

bool QueueCore::poll(std::uint64_t target) noexcept {
  if (RandomSchedule* random = scheduler.random(); random != nullptr && !internal) {
    return random->poll(*this, target);
  }
  return completed.load(std::memory_order_acquire) >= target;
}

Status QueueCore::wait_completed(std::uint64_t target) noexcept {
  if (RandomSchedule* random = scheduler.random(); random != nullptr && !internal) {
    MOJO_RETURN_IF_ERROR(random->drive(*this, target));
  }
  if (completed.load(std::memory_order_acquire) >= target) return {};
  const std::uint64_t deadline = monotonic_nanoseconds() + Scheduler::host_spin_nanoseconds;
  do {
    for (int i = 0; i < 8; ++i) base::cpu_relax();
    if (completed.load(std::memory_order_acquire) >= target) return {};
  } while (monotonic_nanoseconds() < deadline);

  Scheduler::HostWait registered(scheduler, wake_word, 1);
  for (;;) {
    const std::uint32_t seen = wake_word.load(std::memory_order_seq_cst);
    std::uint64_t least = wait_target.load(std::memory_order_seq_cst);
    while (target < least && !wait_target.compare_exchange_weak(least, target, std::memory_order_seq_cst)) {}
    if (completed.load(std::memory_order_seq_cst) >= target) return {};
    if (closed.load(std::memory_order_acquire)) return closed_status();
    MOJO_RETURN_IF_ERROR(scheduler.ensure_worker());
    wake_word.wait(seen, std::memory_order_seq_cst);
  }
}

void QueueCore::establish(std::uint64_t tag) noexcept {
  if (scheduler.random() == nullptr) return;
  std::lock_guard guard(lock);
  if (tag > completed_tag.load(std::memory_order_relaxed)) completed_tag.store(tag, std::memory_order_release);
}

void QueueCore::wake_host_waiters() noexcept {
  // Those whose target lies further ahead see the word change and register again.
  wait_target.store(no_target, std::memory_order_seq_cst);
  wake_word.fetch_add(1, std::memory_order_seq_cst);
  wake_word.notify_all();
}

void QueueCore::close(bool wait_for_running) noexcept {
  Op* parked_ops = nullptr;
  Op* waiting_ops = nullptr;
  {
    std::lock_guard guard(lock);
    closed.store(true, std::memory_order_release);
  }
  if (RandomSchedule* random = scheduler.random(); random != nullptr && !internal) random->forget(*this);
  {
    std::lock_guard guard(lock);
    waiting_ops = take_inbox();
    if (state != QueueState::running) {
      parked_ops = active;
      active = nullptr;
    }
  }
  scheduler.drop(parked_ops);
  scheduler.drop(waiting_ops);
  wake_host_waiters();
  // A task that destroys its own queue cannot wait for itself; the worker's reference keeps the state alive.
  if (!wait_for_running || driver::in_host_task()) return;
  for (;;) {
    const std::uint32_t seen = wake_word.load(std::memory_order_acquire);
    {
      std::lock_guard guard(lock);
      if (state != QueueState::running && !executing) break;
    }
    if (scheduler.detached()) break;
    wake_word.wait(seen, std::memory_order_acquire);
  }
}

void QueueCore::report_failure(std::uint64_t tag, Status status) noexcept {
  if (driver::FailureSink* sink = failures.load(std::memory_order_acquire)) {
    sink->on_failure(tag, std::move(status));
  } else {
    base::report("host driver, queued work", status);
  }
}

}  // namespace mojo::host
