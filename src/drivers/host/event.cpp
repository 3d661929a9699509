#include "drivers/host/event.h"

#include <mutex>

#include "drivers/host/random_schedule.h"

namespace mojo::host {

HostEvent::~HostEvent() {
  Record* const latest = latest_.load(std::memory_order_relaxed);
  if (latest != nullptr && !scheduler_->forked()) scheduler_->records.release(latest);
}

Record* HostEvent::latest() noexcept {
  std::lock_guard guard(lock_);
  Record* const latest = latest_.load(std::memory_order_relaxed);
  if (latest != nullptr) latest->add_ref();
  return latest;
}

Status HostEvent::query(bool& complete) noexcept {
  if (scheduler_->forked()) return scheduler_->forked_status();
  RandomSchedule* const random = scheduler_->random();
  if (random == nullptr) [[likely]] {
    std::lock_guard guard(lock_);
    const Record* const latest = latest_.load(std::memory_order_relaxed);
    complete = latest == nullptr || latest->done();
    return {};
  }
  Record* record = latest();
  complete = record == nullptr || random->poll(*record);
  if (record != nullptr) scheduler_->records.release(record);
  return {};
}

Status HostEvent::synchronize() noexcept {
  if (scheduler_->forked()) return scheduler_->forked_status();
  Record* record = latest();
  if (record == nullptr) return {};
  Status status;
  if (!record->done() && driver::in_host_task()) {
    status = Status(StatusCode::failed_precondition, "host driver: a host task must not wait for an event");
  } else {
    status = scheduler_->wait_record(*record);
  }
  scheduler_->records.release(record);
  return status;
}

Status HostEvent::elapsed_since(driver::Event& other, double& milliseconds) noexcept {
  if (scheduler_->forked()) return scheduler_->forked_status();
  auto& start = static_cast<HostEvent&>(other);
  if (!timing_ || !start.timing_) {
    return Status(StatusCode::invalid_argument, "host driver: elapsed time needs two events made with timing");
  }
  Record* const from = start.latest();
  Record* const to = latest();
  Status status;
  if (from == nullptr || to == nullptr) {
    status = Status(StatusCode::failed_precondition, "host driver: elapsed time needs two events that were recorded");
  } else if (!from->done() || !to->done()) {
    status = Status(StatusCode::failed_precondition, "host driver: elapsed time needs two events that have completed");
  } else {
    milliseconds = static_cast<double>(static_cast<std::int64_t>(to->time - from->time)) * 1e-6;
  }
  if (from != nullptr) scheduler_->records.release(from);
  if (to != nullptr) scheduler_->records.release(to);
  return status;
}

Status HostEvent::record_on(QueueCore& queue, std::uint64_t tag) noexcept {
  RecordPool& pool = scheduler_->records;
  Record* record = nullptr;
  // A look first, without the lock: records are never unmapped, and a stale one only sends us to the pool.
  if (Record* seen = latest_.load(std::memory_order_acquire); seen != nullptr && seen->done()) {
    std::lock_guard guard(lock_);
    // Nobody else knows the finished record: use it again, without the pool. Meanwhile there is none, which stands for
    // the same: complete.
    seen = latest_.load(std::memory_order_relaxed);
    if (seen != nullptr && seen->refs.load(std::memory_order_acquire) == 1 && seen->done()) {
      record = seen;
      latest_.store(nullptr, std::memory_order_relaxed);
    }
  }
  const bool used_before = record != nullptr;
  const std::uint64_t time_before = used_before ? record->time : 0;
  if (record == nullptr && (record = pool.acquire()) == nullptr) {
    return Status(StatusCode::out_of_memory, "host driver: no host memory for an event's record");
  }
  record->reset(&queue, timing_, 2);  // references: this event's and the operation's
  bool at_once = false;
  // On an idle queue all work before the record is done already.
  Status status = queue.run_or_enqueue(
      tag, at_once,
      [&] {
        if (timing_) record->time = scheduler_->clock.now();
      },
      [&](Op& op) {
        op.kind = OpKind::record;
        op.record = record;
      });
  if (at_once) {
    scheduler_->complete_record(record, false, true);
  } else if (!status.ok()) {
    record->time = time_before;
    scheduler_->complete_record(record, true, true);
  }
  // Only now may other threads wait for it: a wait that came before the record in some queue could be one that the
  // record itself waits for.
  Record* old = record;
  if (status.ok() || used_before) {
    std::lock_guard guard(lock_);
    Record* const before = latest_.load(std::memory_order_relaxed);
    if (status.ok() || before == nullptr) {
      old = before;
      latest_.store(record, std::memory_order_release);
    }
  }
  if (old != nullptr) pool.release(old);
  return status;
}

Status HostEvent::wait_on(QueueCore& queue, std::uint64_t tag) noexcept {
  Record* record = nullptr;
  const bool random = scheduler_->random() != nullptr;
  {
    std::lock_guard guard(lock_);
    Record* const latest = latest_.load(std::memory_order_relaxed);
    // The random schedule judges by the decided order, not by what has happened by now. A queue never needs to wait
    // for a record of its own.
    if (latest != nullptr && (random || (!latest->done() && latest->recorded_on != &queue))) {
      record = latest;
      record->add_ref();
    }
  }
  const auto fill_in = [&](Op& op) {
    op.kind = OpKind::wait;
    op.record = record;
  };
  if (record == nullptr) {
    bool nothing_to_do = false;
    return queue.run_or_enqueue(
        tag, nothing_to_do, [] {}, fill_in);
  }
  Status status = queue.enqueue(tag, fill_in);
  if (!status.ok()) scheduler_->records.release(record);
  return status;
}

}  // namespace mojo::host
