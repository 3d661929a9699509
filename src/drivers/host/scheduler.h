// What it is: Scheduler, the worker threads of one host driver and what their queues share: ready lists, timers, pools.
// Ordering: of two ready queues the one of higher priority runs first; equal ones take turns.
// Threads: any. Locks, outermost first: random schedule, QueueCore::lock, ValueSlot::lock, the scheduler's and pools'
//   own.
//   No task, callback or system call that blocks runs under any of them.
// Errors: `admit` says why nothing may be enqueued: forked, shut_down, or no thread could be started.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "drivers/host/fork_epoch.h"
#include "drivers/host/launch.h"
#include "drivers/host/op.h"
#include "drivers/host/queue_core.h"
#include "drivers/host/record.h"
#include "drivers/host/values.h"
#include "mojo/status.h"

namespace mojo::host {

class RandomSchedule;

class Scheduler : public std::enable_shared_from_this<Scheduler> {
 public:
  explicit Scheduler(int workers);
  ~Scheduler();

  // For a host thread that is about to wait: starts the first worker if none could be started when the work was queued.
  Status ensure_worker() noexcept;
  // Whether work may be enqueued; starts the first worker. One comparison when all is well.
  Status admit() noexcept {
    if (admitted_epoch_.load(std::memory_order_acquire) == fork_epoch()) [[likely]]
      return {};
    return admit_slow();
  }
  // The same for calls that need no worker (memory): they too make the process one that has used a device.
  Status admit_without_worker() noexcept;
  // In a child of a process that used this driver: its locks must not be touched.
  bool forked() const noexcept {
    const std::uint32_t used = used_epoch_.load(std::memory_order_relaxed);
    return used != 0 && used != fork_epoch();
  }
  bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire); }
  bool detached() const noexcept { return detached_.load(std::memory_order_acquire); }
  Status stopped_status() const;
  Status forked_status() const;

  void push_ready(QueueCore& queue, bool wake) noexcept;
  // Makes parked queues, linked by wait_next, ready.
  void resume(QueueCore* queues, bool wake) noexcept;
  // Parks `queue`, whose state the caller has set under its lock, until the time. False if that cannot be.
  bool add_timer(QueueCore& queue, std::uint64_t nanoseconds) noexcept;

  void complete_record(Record* record, bool dropped, bool wake) noexcept;  // and releases the caller's reference
  void store_value(ValueSlot& slot, std::uint64_t value, bool wake) noexcept;
  void abandon_value(ValueSlot& slot, const Status& why) noexcept;
  void retire_value(ValueSlot& slot) noexcept;
  // Releases what operations hold without running them: HostTask::drop, records complete as dropped.
  void drop(Op* ops) noexcept;

  void register_queue(QueueCore& queue) noexcept;
  void unregister_queue(QueueCore& queue) noexcept;

  // Host threads asleep on `word` are woken by wake_host_waits, which adds `poke` to it.
  class HostWait {
   public:
    HostWait(Scheduler& scheduler, std::atomic<std::uint32_t>& word, std::uint32_t poke) noexcept;
    ~HostWait();
    HostWait(const HostWait&) = delete;

   private:
    friend class Scheduler;
    Scheduler& scheduler_;
    std::atomic<std::uint32_t>& word_;
    const std::uint32_t poke_;
    HostWait* previous_ = nullptr;
    HostWait* next_ = nullptr;
  };
  // All of them look again: the driver shuts down, or has no worker.
  void wake_host_waits() noexcept;
  // Blocks the host until the record is complete, or the driver shuts down.
  Status wait_record(Record& record) noexcept;

  // "fifo" or "random:SEED". Checks the text only.
  static Status parse_schedule(std::string_view text, bool& random, std::uint64_t& seed);
  // Every queue of the driver must be idle.
  Status set_schedule(std::string_view text) noexcept;
  RandomSchedule* random() const noexcept { return random_.load(std::memory_order_acquire); }

  void shut_down() noexcept;
  int worker_limit() const noexcept { return worker_limit_; }

  OpPool ops;
  LaunchPool launches;
  RecordPool records;
  ValueTable values;
  DeviceClock clock;

  // How long a host wait polls before it sleeps, and a dry worker before it does.
  static constexpr std::uint64_t host_spin_nanoseconds = 4'000;
  static constexpr std::uint64_t worker_spin_nanoseconds = 30'000;
  static constexpr std::uint64_t worker_least_spin_nanoseconds = 2'000;
  // A step of a spin that took so long was preempted; then no worker spins for a while.
  static constexpr std::uint64_t preempted_nanoseconds = 10'000;
  static constexpr std::uint64_t spin_pause_nanoseconds = 20'000'000;

 private:
  static constexpr int priorities = 3;
  static constexpr int slice = 64;  // operations before a queue lets others of its priority run
  static constexpr std::uint32_t epoch_shut_down = 0xffffffffu;

  struct Worker {
    std::mutex mutex;
    std::condition_variable condition;
    bool notified = false;  // under mutex
    Worker* sleeping_next = nullptr;
    bool sleeping = false;   // under the scheduler's lock
    Op* free_ops = nullptr;  // nodes of finished operations, fewer than OpPool::chunk
    int free_count = 0;
    bool searching = false;  // counted in searching_; the worker's own
    std::thread thread;
  };
  struct Timer {
    std::uint64_t deadline, sequence;
    QueueCore* queue;
  };

  Status admit_slow() noexcept;
  bool start_worker() noexcept;  // live_ was raised for it; lowers it again on failure
  void worker_main(Worker& worker) noexcept;
  QueueCore* pop_ready(Worker& worker) noexcept;
  bool spin(QueueCore* queue, std::uint64_t done) noexcept;
  void sleep(Worker& worker) noexcept;
  void unpark(Worker& worker) noexcept;
  Worker* take_sleeper() noexcept;  // under lock_; prefers those that do not keep the timers
  bool reserve_worker() noexcept;   // under lock_
  void wake_if_needed() noexcept;
  void start_searching(Worker& worker) noexcept;
  void stop_searching(Worker& worker) noexcept;
  static int level(int priority) noexcept { return priority + 2; }  // 0 is the most urgent

  // run.cpp: one queue on one worker.
  void run(QueueCore* queue, Worker& worker) noexcept;
  static bool begin_for(QueueCore& owner) noexcept;
  static void end_for(QueueCore& owner) noexcept;
  bool park(QueueCore& queue, Op* op, bool& bail) noexcept;
  void execute(QueueCore& queue, Op& op, bool more) noexcept;
  void execute_wait_value(QueueCore& queue, Op& op) noexcept;
  void recycle(Op* op, Worker& worker) noexcept;
  bool requeue(QueueCore& queue, Op* rest) noexcept;
  void leave(QueueCore& queue, Op* rest) noexcept;

  // parallel.cpp: the blocks of one launch on several workers.
  void execute_launch(QueueCore& queue, Op& op) noexcept;
  void call_for_help(LaunchState& launch) noexcept;
  void end_help(LaunchState& launch) noexcept;
  LaunchState* find_helpable() noexcept;  // under lock_
  bool help(Worker& worker) noexcept;

  static thread_local bool on_worker;  // this thread is one

  const int worker_limit_;
  const int cores_;
  std::atomic<std::uint32_t> admitted_epoch_{0};  // 0: no worker yet
  std::atomic<std::uint32_t> used_epoch_{0};      // 0: not used yet
  std::atomic<bool> stopping_{false};
  std::atomic<RandomSchedule*> random_{nullptr};

  alignas(64) base::SmallLock lock_;  // ready lists, timers, sleepers
  QueueCore* ready_head_[priorities] = {};
  QueueCore* ready_tail_[priorities] = {};
  std::atomic<int> ready_count_{0};
  std::atomic<int> best_level_{priorities};
  // Workers that are about to look at the ready lists, so that none needs waking; a worker stops counting under lock_,
  // or looks at the lists once more.
  std::atomic<int> searching_{0};
  std::atomic<bool> spinner_{false};  // one of them polls
  std::atomic<std::uint64_t> no_spin_before_{0}, spin_budget_{worker_spin_nanoseconds};
  std::atomic<int> live_{0}, sleeping_{0};
  Worker* sleepers_ = nullptr;
  LaunchState* launches_head_ = nullptr;  // those that could do with help
  std::atomic<int> listed_launches_{0};
  bool drained_ = false;      // after shutdown nothing becomes ready
  Worker* keeper_ = nullptr;  // the sleeper whose wait ends with the first timer
  std::uint64_t keeper_deadline_ = 0;
  std::vector<Timer> timers_;  // a heap
  std::atomic<std::uint64_t> next_deadline_{~std::uint64_t{0}};
  std::uint64_t timer_sequence_ = 0;

  std::mutex lifecycle_mutex_;  // workers_, shutting down, the schedule
  std::condition_variable worker_ended_;
  std::vector<std::unique_ptr<Worker>> workers_;
  // Of every random schedule; deleted with the registry.
  QueueCore* executor_ = nullptr;
  QueueCore* ticker_ = nullptr;
  std::vector<std::unique_ptr<RandomSchedule>> schedules_;  // old ones stay: a late caller may be inside
  std::atomic<bool> detached_{false};                       // a running task outlasted shut_down's deadline

  std::mutex registry_mutex_;
  QueueCore* queues_ = nullptr;

  base::SmallLock host_waits_lock_;
  HostWait* host_waits_ = nullptr;
};

int available_cores() noexcept;

}  // namespace mojo::host
