// Host threads that wait: for records, and how shutting down wakes them; and the schedule option, which needs all idle.
#include <charconv>

#include "drivers/host/random_schedule.h"
#include "drivers/host/scheduler.h"

namespace mojo::host {

Scheduler::HostWait::HostWait(Scheduler& scheduler, std::atomic<std::uint32_t>& word, std::uint32_t poke) noexcept
    : scheduler_(scheduler), word_(word), poke_(poke) {
  std::lock_guard guard(scheduler_.host_waits_lock_);
  next_ = scheduler_.host_waits_;
  if (next_ != nullptr) next_->previous_ = this;
  scheduler_.host_waits_ = this;
}

Scheduler::HostWait::~HostWait() {
  std::lock_guard guard(scheduler_.host_waits_lock_);
  if (previous_ != nullptr) {
    previous_->next_ = next_;
  } else {
    scheduler_.host_waits_ = next_;
  }
  if (next_ != nullptr) next_->previous_ = previous_;
}

void Scheduler::wake_host_waits() noexcept {
  std::lock_guard guard(host_waits_lock_);
  for (HostWait* wait = host_waits_; wait != nullptr; wait = wait->next_) {
    wait->word_.fetch_add(wait->poke_, std::memory_order_seq_cst);
    wait->word_.notify_all();
  }
}

Status Scheduler::wait_record(Record& record) noexcept {
  if (!record.done()) {
    if (RandomSchedule* schedule = random()) MOJO_RETURN_IF_ERROR(schedule->drive(record));
    const std::uint64_t deadline = monotonic_nanoseconds() + host_spin_nanoseconds;
    while (!record.done() && monotonic_nanoseconds() < deadline) {
      for (int i = 0; i < 8; ++i) base::cpu_relax();
    }
  }
  if (!record.done()) {
    HostWait registered(*this, record.word, Record::poke);
    for (;;) {
      const std::uint32_t word = record.word.load(std::memory_order_acquire);
      if ((word & Record::complete_bit) != 0) break;
      if (stopping()) return stopped_status();
      if ((word & Record::host_waits_bit) == 0) {
        record.word.fetch_or(Record::host_waits_bit, std::memory_order_acq_rel);
        continue;
      }
      MOJO_RETURN_IF_ERROR(ensure_worker());
      record.word.wait(word, std::memory_order_acquire);
    }
  }
  return record.dropped() && stopping() ? stopped_status() : Status();
}

Status Scheduler::parse_schedule(std::string_view text, bool& random, std::uint64_t& seed) {
  constexpr std::string_view prefix = "random:";
  random = text.starts_with(prefix);
  if (text == "fifo") return {};
  if (random) {
    const std::string_view digits = text.substr(prefix.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
    if (error == std::errc() && end == digits.data() + digits.size()) return {};
  }
  return Status(StatusCode::invalid_argument,
                "host driver: schedule '" + std::string(text) +
                    "' is neither 'fifo' nor 'random:SEED' with SEED from 0 to 18446744073709551615");
}

Status Scheduler::set_schedule(std::string_view text) noexcept {
  bool to_random = false;
  std::uint64_t seed = 0;
  MOJO_RETURN_IF_ERROR(parse_schedule(text, to_random, seed));
  if (forked()) return forked_status();
  std::lock_guard lifecycle(lifecycle_mutex_);
  if (stopping()) return stopped_status();
  std::unique_ptr<RandomSchedule> schedule;
  try {
    for (QueueCore** core : {&executor_, &ticker_}) {
      if (!to_random || *core != nullptr) continue;
      *core = new QueueCore(*this, -1, 0);
      (*core)->internal = true;
      (*core)->is_executor = *core == executor_;
    }
    if (to_random) schedule = std::make_unique<RandomSchedule>(*this, *executor_, *ticker_, seed);
    schedules_.reserve(schedules_.size() + 1);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::out_of_memory, "host driver: no host memory for a schedule");
  }
  std::lock_guard registry(registry_mutex_);
  bool idle = true;
  for (QueueCore* queue = queues_; queue != nullptr; queue = queue->registry_next) {
    queue->lock.lock();
    // Not the schedule's own: the executor counts an operation after its owner has.
    idle = idle && (queue->idle() || queue->internal || queue->closed.load(std::memory_order_relaxed));
  }
  if (idle) random_.store(schedule.get(), std::memory_order_release);
  for (QueueCore* queue = queues_; queue != nullptr; queue = queue->registry_next) {
    if (idle) {
      queue->random_schedule = to_random && !queue->internal;
      queue->decided = queue->enqueued.load(std::memory_order_relaxed);
      queue->turn = 0;
      queue->in_ready_set = queue->blocked = false;
      queue->blocked_on = nullptr;
      // What was known in the old mode is known in the new one: everything is complete.
      const std::uint64_t last = queue->last_tag.load(std::memory_order_relaxed);
      if (last > queue->completed_tag.load(std::memory_order_relaxed)) {
        queue->completed_tag.store(last, std::memory_order_release);
      }
    }
    queue->lock.unlock();
  }
  if (!idle) {
    return Status(StatusCode::failed_precondition,
                  "host driver: the schedule can be set only while every queue of the driver is idle");
  }
  if (schedule != nullptr) schedules_.push_back(std::move(schedule));
  return {};
}

}  // namespace mojo::host
