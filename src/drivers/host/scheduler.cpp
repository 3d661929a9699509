#include "drivers/host/scheduler.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>

#include "drivers/host/random_schedule.h"

namespace mojo::host {
namespace {

// Signals are for the program's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

bool later(const auto& a, const auto& b) noexcept {
  return a.deadline != b.deadline ? a.deadline > b.deadline : a.sequence > b.sequence;
}

}  // namespace

int available_cores() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

thread_local bool Scheduler::on_worker = false;

Scheduler::Scheduler(int workers)
    : worker_limit_(workers > 0 ? workers : std::max(2, available_cores())), cores_(available_cores()) {
  watch_forks();
}

Status Scheduler::forked_status() const {
  return Status(StatusCode::forked,
                "the host device cannot be used in a process forked after it has been used; fork before the first use, "
                "or start the process with the 'spawn' method");
}

Status Scheduler::stopped_status() const {
  return Status(StatusCode::shut_down, "host driver: the device has been shut down");
}

Status Scheduler::admit_without_worker() noexcept {
  if (stopping()) return stopped_status();
  std::uint32_t used = used_epoch_.load(std::memory_order_relaxed);
  const std::uint32_t now = fork_epoch();
  if (used == 0 && used_epoch_.compare_exchange_strong(used, now)) return {};
  return used == now ? Status() : forked_status();
}

Status Scheduler::ensure_worker() noexcept {
  if (live_.load(std::memory_order_relaxed) != 0) [[likely]]
    return {};
  {
    std::lock_guard guard(lock_);
    if (live_.load() != 0) return {};  // another thread is starting it, and is told if that fails
    live_.fetch_add(1);
  }
  if (start_worker()) return {};
  if (stopping()) return stopped_status();
  return Status(StatusCode::unavailable, "host driver: no thread could be started for the device's work");
}

Status Scheduler::admit_slow() noexcept {
  MOJO_RETURN_IF_ERROR(admit_without_worker());
  MOJO_RETURN_IF_ERROR(ensure_worker());
  admitted_epoch_.store(fork_epoch(), std::memory_order_release);
  if (stopping()) admitted_epoch_.store(epoch_shut_down, std::memory_order_release);
  return {};
}

bool Scheduler::start_worker() noexcept {
  std::lock_guard guard(lifecycle_mutex_);
  try {
    if (!stopping()) {
      workers_.reserve(workers_.size() + 1);
      auto worker = std::make_unique<Worker>();
      SignalsBlocked blocked;
      worker->thread = std::thread([self = shared_from_this(), raw = worker.get()] { self->worker_main(*raw); });
      workers_.push_back(std::move(worker));
      return true;
    }
  } catch (const std::exception&) {
    // No memory or no thread: the workers there are do it all.
  }
  if (live_.fetch_sub(1) == 1) wake_host_waits();  // they see that nobody is there to do the work
  return false;
}

void Scheduler::worker_main(Worker& worker) noexcept {
  on_worker = true;
#if defined(__linux__)
  pthread_setname_np(pthread_self(), "mojo-host");
#endif
  while (!stopping()) {
    start_searching(worker);
    if (QueueCore* queue = pop_ready(worker)) {
      run(queue, worker);
    } else if (!help(worker) && !spin(nullptr, 0)) {
      sleep(worker);
    }
  }
  stop_searching(worker);
  ops.give(worker.free_ops);
  worker.free_ops = nullptr;
  std::lock_guard guard(lifecycle_mutex_);
  live_.fetch_sub(1);
  worker_ended_.notify_all();
}

bool Scheduler::reserve_worker() noexcept {
  if (live_.load(std::memory_order_relaxed) >= worker_limit_ || stopping()) return false;
  live_.fetch_add(1);
  return true;
}

Scheduler::Worker* Scheduler::take_sleeper() noexcept {
  Worker** link = &sleepers_;
  if (*link != nullptr && *link == keeper_ && (*link)->sleeping_next != nullptr) link = &(*link)->sleeping_next;
  Worker* worker = *link;
  if (worker == nullptr) return nullptr;
  *link = worker->sleeping_next;
  worker->sleeping = false;
  sleeping_.fetch_sub(1, std::memory_order_relaxed);
  if (keeper_ == worker) keeper_ = nullptr;
  return worker;
}

void Scheduler::unpark(Worker& worker) noexcept {
  {
    std::lock_guard guard(worker.mutex);
    worker.notified = true;
  }
  worker.condition.notify_one();
}

void Scheduler::push_ready(QueueCore& queue, bool wake) noexcept {
  Worker* sleeper = nullptr;
  bool start = false, dead = false;
  {
    std::lock_guard guard(lock_);
    dead = drained_;
    if (!dead) {
      const int l = level(queue.priority);
      queue.ready_next = nullptr;
      if (ready_tail_[l] != nullptr) {
        ready_tail_[l]->ready_next = &queue;
      } else {
        ready_head_[l] = &queue;
      }
      ready_tail_[l] = &queue;
      ready_count_.fetch_add(1, std::memory_order_seq_cst);
      if (l < best_level_.load(std::memory_order_relaxed)) best_level_.store(l, std::memory_order_relaxed);
      if (wake && searching_.load(std::memory_order_seq_cst) == 0) {
        sleeper = take_sleeper();
        if (sleeper == nullptr) start = reserve_worker();
      }
    }
  }
  if (dead) queue.unref();
  if (sleeper != nullptr) unpark(*sleeper);
  if (start) start_worker();
}

void Scheduler::start_searching(Worker& worker) noexcept {
  if (worker.searching) return;
  worker.searching = true;
  searching_.fetch_add(1, std::memory_order_seq_cst);
}

void Scheduler::stop_searching(Worker& worker) noexcept {
  if (!worker.searching) return;
  worker.searching = false;
  searching_.fetch_sub(1, std::memory_order_seq_cst);
}

void Scheduler::wake_if_needed() noexcept {
  Worker* sleeper = nullptr;
  bool start = false;
  {
    std::lock_guard guard(lock_);
    if (ready_count_.load(std::memory_order_seq_cst) == 0 || searching_.load(std::memory_order_seq_cst) != 0) return;
    sleeper = take_sleeper();
    if (sleeper == nullptr) start = reserve_worker();
  }
  if (sleeper != nullptr) unpark(*sleeper);
  if (start) start_worker();
}

QueueCore* Scheduler::pop_ready(Worker& worker) noexcept {
  for (;;) {
    QueueCore* expired = nullptr;
    QueueCore* queue = nullptr;
    Worker* sleeper = nullptr;
    bool start = false;
    const bool timed = next_deadline_.load(std::memory_order_relaxed) != ~std::uint64_t{0};
    const std::uint64_t now = timed ? monotonic_nanoseconds() : 0;
    {
      std::lock_guard guard(lock_);
      QueueCore** tail = &expired;
      while (!timers_.empty() && timers_.front().deadline <= now) {
        std::pop_heap(timers_.begin(), timers_.end(), later<Timer, Timer>);
        *tail = timers_.back().queue;
        timers_.pop_back();
        (*tail)->wait_next = nullptr;
        (*tail)->resume = Resume::satisfied;
        tail = &(*tail)->wait_next;
      }
      next_deadline_.store(timers_.empty() ? ~std::uint64_t{0} : timers_.front().deadline, std::memory_order_relaxed);
      const int l = best_level_.load(std::memory_order_relaxed);
      if (expired == nullptr && l < priorities) {
        queue = ready_head_[l];
        ready_head_[l] = queue->ready_next;
        if (ready_head_[l] == nullptr) {
          ready_tail_[l] = nullptr;
          int best = l + 1;
          while (best < priorities && ready_head_[best] == nullptr) ++best;
          best_level_.store(best, std::memory_order_relaxed);
        }
        ready_count_.fetch_sub(1, std::memory_order_seq_cst);
        stop_searching(worker);
        // This thread will be busy: somebody must see to the rest, and to the clock.
        const bool more =
            ready_count_.load(std::memory_order_seq_cst) != 0 && searching_.load(std::memory_order_seq_cst) == 0;
        if (more || (!timers_.empty() && keeper_ == nullptr)) {
          sleeper = take_sleeper();
          if (sleeper == nullptr) start = reserve_worker();
        }
      }
    }
    if (sleeper != nullptr) unpark(*sleeper);
    if (start) start_worker();
    if (expired == nullptr) return queue;
    resume(expired, false);
  }
}

void Scheduler::resume(QueueCore* queues, bool wake) noexcept {
  while (queues != nullptr) {
    QueueCore& queue = *queues;
    queues = queue.wait_next;
    {
      // Also waits for the worker that is just parking it.
      std::lock_guard guard(queue.lock);
      queue.state = QueueState::ready;
    }
    push_ready(queue, wake);
  }
}

bool Scheduler::add_timer(QueueCore& queue, std::uint64_t nanoseconds) noexcept {
  const std::uint64_t now = monotonic_nanoseconds();
  const std::uint64_t limit = std::uint64_t{1} << 62;  // beyond what a timed wait can express
  const std::uint64_t deadline = nanoseconds < limit - now ? now + nanoseconds : limit;
  std::lock_guard guard(lock_);
  if (drained_) return false;
  try {
    timers_.push_back({deadline, ++timer_sequence_, &queue});
  } catch (const std::bad_alloc&) {
    return false;
  }
  std::push_heap(timers_.begin(), timers_.end(), later<Timer, Timer>);
  next_deadline_.store(timers_.front().deadline, std::memory_order_relaxed);
  // The calling worker goes on to pop_ready and either sleeps as the new keeper or wakes somebody who will.
  if (keeper_ != nullptr && keeper_deadline_ > deadline) keeper_ = nullptr;
  return true;
}

bool Scheduler::spin(QueueCore* queue, std::uint64_t done) noexcept {
  // One thread at most, and only where that leaves the enqueuing thread a core.
  std::uint64_t last = monotonic_nanoseconds();
  if (last < no_spin_before_.load(std::memory_order_relaxed)) return false;
  if (live_.load(std::memory_order_relaxed) - sleeping_.load(std::memory_order_relaxed) > std::max(1, cores_ - 1)) {
    return false;
  }
  if (spinner_.exchange(true, std::memory_order_seq_cst)) return false;
  bool got = false;
  std::uint64_t next_budget = worker_spin_nanoseconds;
  const std::uint64_t budget = spin_budget_.load(std::memory_order_relaxed);
  const std::uint64_t deadline = last + budget;
  for (;;) {
    for (int i = 0; i < 4; ++i) base::cpu_relax();
    if (queue != nullptr && queue->enqueued.load(std::memory_order_relaxed) != done) {
      got = true;
      break;
    }
    if (ready_count_.load(std::memory_order_relaxed) != 0 || stopping()) break;
    if (listed_launches_.load(std::memory_order_relaxed) != 0) break;
    if (queue != nullptr && queue->closed.load(std::memory_order_relaxed)) break;
    const std::uint64_t now = monotonic_nanoseconds();
    if (now - last > preempted_nanoseconds) {
      // Somebody else wants this core. On a busy machine spinning takes from the very threads it waits for.
      no_spin_before_.store(now + spin_pause_nanoseconds, std::memory_order_relaxed);
      break;
    }
    last = now;
    if (now >= next_deadline_.load(std::memory_order_relaxed)) break;
    if (now >= deadline) {
      next_budget = std::max(budget / 2, worker_least_spin_nanoseconds);
      break;
    }
  }
  // In full as long as it pays: work that comes in a rhythm finds the worker awake, a lone task costs little.
  spin_budget_.store(next_budget, std::memory_order_relaxed);
  spinner_.store(false, std::memory_order_seq_cst);
  return got;
}

void Scheduler::sleep(Worker& worker) noexcept {
  bool timed = false;
  std::uint64_t deadline = 0;
  {
    std::lock_guard guard(lock_);
    if (ready_count_.load(std::memory_order_seq_cst) != 0 || find_helpable() != nullptr || stopping()) return;
    stop_searching(worker);
    worker.sleeping = true;
    worker.sleeping_next = sleepers_;
    sleepers_ = &worker;
    sleeping_.fetch_add(1, std::memory_order_relaxed);
    if (!timers_.empty() && keeper_ == nullptr) {
      keeper_ = &worker;
      timed = true;
      keeper_deadline_ = deadline = timers_.front().deadline;
    }
  }
  {
    std::unique_lock guard(worker.mutex);
    const auto notified = [&worker] { return worker.notified; };
    if (timed) {
      const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(deadline)};
      worker.condition.wait_until(guard, until, notified);
    } else {
      worker.condition.wait(guard, notified);
    }
    worker.notified = false;
  }
  std::lock_guard guard(lock_);
  if (worker.sleeping) {
    Worker** link = &sleepers_;
    while (*link != &worker) link = &(*link)->sleeping_next;
    *link = worker.sleeping_next;
    worker.sleeping = false;
    sleeping_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (keeper_ == &worker) keeper_ = nullptr;
}

}  // namespace mojo::host
