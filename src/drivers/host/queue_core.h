// What it is: QueueCore, the state of one queue: its pending operations, its progress, who waits for it.
// Ordering: operations run in the order of the enqueues; `completed` is published after an operation's effects.
// Threads: any may enqueue; at most one worker runs the queue. References are counted: the handle
//   holds one, and so does whatever will make the queue run on (a ready list, a record, a value, the timers).
// Errors: an enqueue on a closed queue returns `shut_down`, or `failed_precondition` if it was destroyed.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/small_lock.h"
#include "drivers/host/op.h"
#include "drivers/host/record.h"
#include "drivers/host/values.h"
#include "mojo/status.h"

namespace mojo::host {

class Scheduler;

enum class QueueState : std::uint8_t {
  idle,     // nothing pending, or the random schedule decides
  ready,    // on a ready list, or about to be
  running,  // a worker has it, perhaps only lingering for the next operation
  parked,   // waits for a record, a value or the clock; holds no thread
};

class QueueCore {
 public:
  QueueCore(Scheduler& scheduler, int device, int priority);
  ~QueueCore();
  QueueCore(const QueueCore&) = delete;
  QueueCore& operator=(const QueueCore&) = delete;

  // Appends one operation; `init` fills in kind and payload.
  template <class Init>
  Status enqueue(std::uint64_t tag, Init&& init) noexcept {
    bool never = false;
    const auto nothing = [] {};
    return run_or_enqueue<false>(tag, never, nothing, init);
  }

  // If nothing is pending, calls `action` (short, under the lock) instead of an enqueue and sets `ran`. The caller
  // thereby saves waking a worker for something that would be the first and only operation.
  template <class Action, class Init>
  Status run_or_enqueue(std::uint64_t tag, bool& ran, Action&& action, Init&& init) noexcept {
    return run_or_enqueue<true>(tag, ran, action, init);
  }

  template <bool may_run, class Action, class Init>
  Status run_or_enqueue(std::uint64_t tag, bool& ran, Action& action, Init& init) noexcept {
    bool activate = false;
    bool random = false;
    {
      std::lock_guard guard(lock);
      if (closed.load(std::memory_order_relaxed)) return closed_status();
      if constexpr (may_run) {
        if (!random_schedule && idle()) {
          action();
          if (tag > completed_tag.load(std::memory_order_relaxed)) completed_tag.store(tag, std::memory_order_release);
          ran = true;
          return {};
        }
      }
      Op* op = free_ops;
      if (op == nullptr && (op = refill()) == nullptr) return no_memory_status();
      free_ops = op->next;
      // A worker wrote it last: the next enqueue finds it on its way.
      if (free_ops != nullptr) __builtin_prefetch(free_ops, 1);
      op->next = nullptr;
      op->tag = tag;
      init(*op);
      append(op);
      last_tag.store(tag, std::memory_order_release);
      random = random_schedule;
      if (!random && state == QueueState::idle) {
        state = QueueState::ready;
        add_ref();
        activate = true;
      }
    }
    if (activate) {
      push_ready();
    } else if (random) {
      decide_some();
    }
    return {};
  }

  bool idle() const noexcept {
    return completed.load(std::memory_order_acquire) == enqueued.load(std::memory_order_acquire);
  }
  // Whether the first `target` operations are complete; the random schedule may first decide some.
  bool poll(std::uint64_t target) noexcept;
  // Blocks the host until they are.
  Status wait_completed(std::uint64_t target) noexcept;
  // Under the random schedule `completed_tag` says only what a query or synchronize has established, or the
  // allocator's decisions would depend on how fast the executor is.
  void establish(std::uint64_t tag) noexcept;

  // Drops what is pending. With `wait_for_running`, returns after the running operation.
  void close(bool wait_for_running) noexcept;

  // For the scheduler.
  // Not what the random schedule is to decide: a worker may linger here from before the schedule was set.
  Op* take_work() noexcept { return random_schedule ? nullptr : take_inbox(); }  // under the lock
  Op* take_inbox() noexcept {                                                    // under the lock
    Op* ops = inbox_head;
    inbox_head = inbox_tail = nullptr;
    return ops;
  }
  void append(Op* op) noexcept {  // under the lock
    if (inbox_tail == nullptr) {
      inbox_head = op;
    } else {
      inbox_tail->next = op;
    }
    inbox_tail = op;
    enqueued.store(enqueued.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void complete(std::uint64_t count) noexcept {
    // Sequentially consistent against wait_completed, which stores its target and then reads `completed`.
    completed.store(count, std::memory_order_seq_cst);
    if (count >= wait_target.load(std::memory_order_seq_cst)) wake_host_waiters();
  }
  void wake_host_waiters() noexcept;
  void add_ref() noexcept { refs.fetch_add(1, std::memory_order_relaxed); }
  // False if the last reference is gone already: its destructor is about to run.
  bool add_ref_unless_dead() noexcept {
    std::uint32_t count = refs.load(std::memory_order_relaxed);
    while (count != 0 && !refs.compare_exchange_weak(count, count + 1, std::memory_order_relaxed)) {}
    return count != 0;
  }
  void unref() noexcept {
    if (refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  void report_failure(std::uint64_t tag, Status status) noexcept;

  // The enqueuing thread's line.
  alignas(64) base::SmallLock lock;  // guards the inbox, free_ops, state and, unless running, active
  QueueState state = QueueState::idle;
  std::atomic<bool> closed{false};  // written under the lock
  bool random_schedule = false;     // written under the lock, while idle
  bool executing = false;           // the random schedule's executor is at one of its operations
  Op* inbox_head = nullptr;
  Op* inbox_tail = nullptr;
  Op* free_ops = nullptr;
  std::atomic<std::uint64_t> enqueued{0};  // how many operations ever; written under the lock
  std::atomic<std::uint64_t> last_tag{0};

  // The worker's line.
  alignas(64) std::atomic<std::uint64_t> completed{0};
  std::atomic<std::uint64_t> completed_tag{0};
  std::atomic<std::uint64_t> wait_target{no_target};  // the least count that a sleeping host thread waits for
  std::atomic<std::uint32_t> wake_word{0};            // changes whenever sleeping host threads should look again
  Resume resume = Resume::none;
  Op* active = nullptr;             // taken from the inbox, not yet run; the first may be what the queue parks on
  QueueCore* ready_next = nullptr;  // ready list
  QueueCore* wait_next = nullptr;   // waiters of a record or a value

  static constexpr std::uint64_t no_target = ~std::uint64_t{0};

  std::atomic<std::uint32_t> refs{1};
  const int device;
  const int priority;
  std::uint64_t wait_for_value = 0;
  std::atomic<driver::FailureSink*> failures{nullptr};
  Scheduler& scheduler;  // handles keep it alive, and it deletes what is left
  QueueCore* registry_previous = nullptr;
  QueueCore* registry_next = nullptr;

  // The random schedule's, under its lock.
  std::uint64_t decided = 0;  // how many operations are in the decided order
  std::uint32_t turn = 0;     // order of first use since the schedule was set; 0: not used yet
  bool in_ready_set = false;
  bool blocked = false;  // its head waits for a record or value
  Record* blocked_on = nullptr;
  bool is_executor = false;  // runs decided operations of other queues
  bool internal = false;     // the executor or the ticker of the random schedule: always a plain FIFO

 private:
  Op* refill() noexcept;
  Status closed_status() const;
  static Status no_memory_status();
  void push_ready() noexcept;
  void decide_some() noexcept;
};
static_assert(sizeof(QueueCore) <= 300);

}  // namespace mojo::host
