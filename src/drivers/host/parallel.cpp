// How the blocks of one launch spread over the workers.
//
// The worker whose queue the launch is on leads: it takes blocks until there are none left, then waits for those that
// others have taken. Workers that have nothing else to do help. A helper takes a few blocks at a time and looks up in
// between: as soon as a queue is ready or a timer due, it goes, so a launch keeps no other queue waiting for longer than
// a share of blocks takes. The leader waits only for blocks that a thread is running, so nothing can wait in a circle.
// Shutting down ends a launch after the shares that are running.
#include <algorithm>

#include "drivers/host/block_runner.h"
#include "drivers/host/scheduler.h"
#include "drivers/host/share.h"

namespace mojo::host {
namespace {

// Launches with fewer threads are led alone at first, since waking another worker costs microseconds.
constexpr std::uint64_t threads_worth_help = 8192;
constexpr std::uint64_t alone_nanoseconds = 20'000;

}  // namespace

LaunchState* Scheduler::find_helpable() noexcept {
  for (LaunchState* launch = launches_head_; launch != nullptr; launch = launch->listed_next) {
    if (launch->left() != 0 && !launch->no_help.load(std::memory_order_relaxed)) return launch;
  }
  return nullptr;
}

void Scheduler::call_for_help(LaunchState& launch) noexcept {
  int wanted = static_cast<int>(std::min<std::uint64_t>(launch.blocks - 1, static_cast<unsigned>(worker_limit_ - 1)));
  {
    std::lock_guard guard(lock_);
    launch.listed_next = launches_head_;
    launches_head_ = &launch;
    listed_launches_.fetch_add(1, std::memory_order_seq_cst);
    wanted -= searching_.load(std::memory_order_seq_cst);
  }
  for (; wanted > 0 && launch.left() != 0; --wanted) {
    Worker* sleeper = nullptr;
    bool start = false;
    {
      std::lock_guard guard(lock_);
      sleeper = take_sleeper();
      if (sleeper == nullptr) start = reserve_worker();
    }
    if (sleeper == nullptr && !start) break;
    if (sleeper != nullptr) unpark(*sleeper);
    if (start && !start_worker()) break;
  }
}

void Scheduler::end_help(LaunchState& launch) noexcept {
  {
    std::lock_guard guard(lock_);
    LaunchState** link = &launches_head_;
    while (*link != &launch) link = &(*link)->listed_next;
    *link = launch.listed_next;
    listed_launches_.fetch_sub(1, std::memory_order_seq_cst);
  }
  // Nobody joins any more. Those who have are running blocks.
  for (int spins = 0; spins < 2000 && launch.helpers.load(std::memory_order_acquire) != 0; ++spins) base::cpu_relax();
  for (;;) {
    const std::uint32_t helpers = launch.helpers.load(std::memory_order_acquire);
    if (helpers == 0) return;
    launch.helpers.wait(helpers, std::memory_order_acquire);
  }
}

void Scheduler::execute_launch(QueueCore& queue, Op& op) noexcept {
  LaunchState& launch = *op.launch;
  BlockRunner& runner = BlockRunner::of_this_thread();
  if (runner.prepare(launch)) {
    Share share;
    bool listed = false;
    const bool shares = launch.blocks > 1;
    const bool may_spread = shares && worker_limit_ > 1;
    const bool large =
        launch.blocks >= threads_worth_help || launch.blocks * launch.block_threads >= threads_worth_help;
    if (may_spread && large) {
      call_for_help(launch);
      listed = true;
    }
    const std::uint64_t began = shares ? monotonic_nanoseconds() : 0;
    std::uint64_t last_look = began;
    for (std::uint64_t first = 0, last = 0;
         !stopping() && launch.take(share.wanted(launch.left(), worker_limit_), first, last);) {
      runner.run(first, last);
      if (!shares) break;
      const std::uint64_t now = monotonic_nanoseconds();
      share.took(now - last_look);
      last_look = now;
      if (may_spread && !listed && now - began > alone_nanoseconds && launch.left() != 0) {
        call_for_help(launch);
        listed = true;
      }
    }
    if (listed) end_help(launch);
    if (launch.left() != 0) queue.report_failure(op.tag, stopped_status());  // the driver is shutting down
  } else {
    queue.report_failure(op.tag, Status(StatusCode::out_of_memory,
                                        "host driver: no host memory for a launch's stacks and shared memory"));
  }
  launches.unref(&launch);
}

// Whether there was anything to do instead of going to sleep.
bool Scheduler::help(Worker& worker) noexcept {
  LaunchState* launch = nullptr;
  Worker* sleeper = nullptr;
  bool start = false;
  {
    std::lock_guard guard(lock_);
    if (ready_count_.load(std::memory_order_seq_cst) != 0) return true;
    launch = find_helpable();
    if (launch == nullptr) return false;
    launch->refs.fetch_add(1, std::memory_order_relaxed);
    launch->helpers.fetch_add(1, std::memory_order_relaxed);
    stop_searching(worker);
    if (!timers_.empty() && keeper_ == nullptr) {  // somebody must see to the clock
      sleeper = take_sleeper();
      if (sleeper == nullptr) start = reserve_worker();
    }
  }
  if (sleeper != nullptr) unpark(*sleeper);
  if (start) start_worker();

  BlockRunner& runner = BlockRunner::of_this_thread();
  if (runner.prepare(*launch)) {
    Share share;
    std::uint64_t last_look = monotonic_nanoseconds();
    std::uint64_t first = 0, last = 0;
    while (ready_count_.load(std::memory_order_relaxed) == 0 && !stopping() &&
           last_look < next_deadline_.load(std::memory_order_relaxed) &&
           launch->take(share.wanted(launch->left(), worker_limit_), first, last)) {
      runner.run(first, last);
      const std::uint64_t now = monotonic_nanoseconds();
      share.took(now - last_look);
      last_look = now;
    }
  } else {
    launch->no_help.store(true, std::memory_order_relaxed);
  }
  // The reference keeps the word that is notified.
  if (launch->helpers.fetch_sub(1, std::memory_order_acq_rel) == 1) launch->helpers.notify_all();
  launches.unref(launch);
  return true;
}

}  // namespace mojo::host
