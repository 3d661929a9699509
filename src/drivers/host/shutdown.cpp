// Which queues there are, and how they and their workers end.
#include <chrono>
#include <vector>

#include "drivers/host/random_schedule.h"
#include "drivers/host/scheduler.h"

namespace mojo::host {

Scheduler::~Scheduler() {
  // The executor, and queues whose wait never ended: nothing refers to them any more.
  if (forked()) return;  // the registry's lock may be held by a thread that no longer exists
  // An enqueue that was late for shut_down may have left operations on the executor, which hold references to queues.
  for (QueueCore* core : {executor_, ticker_}) {
    if (core != nullptr) drop(core->take_inbox());
  }
  while (queues_ != nullptr) delete queues_;  // NOLINT(clang-analyzer-cplusplus.NewDelete): its destructor unlinks it
}

void Scheduler::register_queue(QueueCore& queue) noexcept {
  std::lock_guard guard(registry_mutex_);
  queue.random_schedule = random() != nullptr;
  if (stopping()) queue.closed.store(true, std::memory_order_relaxed);  // shut_down may have passed by
  queue.registry_next = queues_;
  if (queues_ != nullptr) queues_->registry_previous = &queue;
  queues_ = &queue;
}

void Scheduler::unregister_queue(QueueCore& queue) noexcept {
  std::lock_guard guard(registry_mutex_);
  if (queue.registry_previous != nullptr) {
    queue.registry_previous->registry_next = queue.registry_next;
  } else {
    queues_ = queue.registry_next;
  }
  if (queue.registry_next != nullptr) queue.registry_next->registry_previous = queue.registry_previous;
}

void Scheduler::shut_down() noexcept {
  if (forked()) return;
  {
    std::lock_guard guard(lifecycle_mutex_);
    if (stopping_.exchange(true)) return;
    admitted_epoch_.store(epoch_shut_down, std::memory_order_release);
  }
  {
    // From here on nothing is enqueued, and workers let go of their queues after the running operation.
    std::lock_guard guard(registry_mutex_);
    for (QueueCore* queue = queues_; queue != nullptr; queue = queue->registry_next) {
      std::lock_guard queue_guard(queue->lock);
      queue->closed.store(true, std::memory_order_release);
    }
  }
  for (;;) {
    Worker* sleeper = nullptr;
    {
      std::lock_guard guard(lock_);
      sleeper = take_sleeper();
    }
    if (sleeper == nullptr) break;
    unpark(*sleeper);
  }
  {
    std::unique_lock guard(lifecycle_mutex_);
    const int self = on_worker ? 1 : 0;  // exit() called by a task
    const bool ended = worker_ended_.wait_for(guard, std::chrono::seconds(5), [&] { return live_.load() <= self; });
    if (!ended || self != 0) detached_.store(true, std::memory_order_release);
    for (auto& worker : workers_) {
      if (!worker->thread.joinable()) continue;
      if (detached()) {
        worker->thread.detach();
      } else {
        worker->thread.join();
      }
    }
  }
  // What never ran. References keep the queues while their tasks' own code runs without a lock.
  std::vector<QueueCore*> queues;
  {
    std::lock_guard guard(registry_mutex_);
    for (QueueCore* queue = queues_; queue != nullptr; queue = queue->registry_next) {
      if (queue->add_ref_unless_dead()) queues.push_back(queue);
    }
  }
  for (QueueCore* queue : queues) queue->close(false);
  resume(values.abandon_all(stopped_status()), false);
  QueueCore* activated = nullptr;
  {
    std::lock_guard guard(lock_);
    drained_ = true;
    for (int l = 0; l < priorities; ++l) {
      while (QueueCore* queue = ready_head_[l]) {
        ready_head_[l] = queue->ready_next;
        queue->ready_next = activated;
        activated = queue;
      }
      ready_tail_[l] = nullptr;
    }
    for (const Timer& timer : timers_) {
      timer.queue->ready_next = activated;
      activated = timer.queue;
    }
    timers_.clear();
    ready_count_.store(0);
    best_level_.store(priorities);
    next_deadline_.store(~std::uint64_t{0});
  }
  while (activated != nullptr) {
    QueueCore* queue = activated;
    activated = queue->ready_next;
    queue->unref();
  }
  for (QueueCore* queue : queues) queue->unref();
  wake_host_waits();
}

}  // namespace mojo::host
