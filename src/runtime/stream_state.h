// What it is: StreamState, one stream: its number, its driver queue once it is used, its clock and its failures.
// Ordering: operations are numbered from 1 in the order in which the driver gets them; the clock says which operations
//   of other streams the next one is ordered after.
// Threads: any. `mutex` makes "take a number, hand over to the driver" one step; nothing that blocks the host and no
//   allocator is called under it. Failures have a lock of their own, since driver threads report them.
// Errors: Status. A refused operation takes no number.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/small_lock.h"
#include "driver/driver.h"
#include "mojo/status.h"
#include "ordering/clock.h"
#include "runtime/process_state.h"

namespace mojo::detail {

class DeviceState;

class StreamState final : public driver::FailureSink {
 public:
  StreamState(DeviceState& device, std::uint64_t id, int priority, bool is_default) noexcept
      : device_(device), id_(id), priority_(priority), is_default_(is_default) {}

  DeviceState& device() const noexcept { return device_; }
  std::uint64_t id() const noexcept { return id_; }
  int priority() const noexcept { return priority_; }
  ordering::StreamUid uid() const noexcept { return uid_; }
  void set_uid(ordering::StreamUid uid) noexcept { uid_ = uid; }

  // Hands one operation to the driver: `operation(queue, number)` returns a Status. `taken`, if not null, gets the number.
  template <class Operation>
  Status enqueue(Operation&& operation, std::uint64_t* taken = nullptr) noexcept {
    MOJO_RETURN_IF_ERROR(runtime::usable());
    const std::lock_guard lock(mutex_);
    return enqueue_locked(operation, taken);
  }

  // Calls `read` on this thread, as one operation of the stream, if all that was queued is known to be complete. `read` is
  // short: the stream takes nothing else meanwhile.
  template <class Read>
  Status run_if_idle(bool& ran, Read&& read) noexcept {
    ran = false;
    MOJO_RETURN_IF_ERROR(runtime::usable());
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = sequence_.load(std::memory_order_relaxed) + 1;
    if (completed() + 1 < number || handle_known_.load(std::memory_order_relaxed)) return {};
    at_once_.store(number, std::memory_order_relaxed);
    sequence_.store(number, std::memory_order_release);  // from here on a free counts it as a use
    read();
    note_completed(number);
    at_once_.store(0, std::memory_order_release);
    ran = true;
    return {};
  }

  // Records `event` and copies the clock at that point, both as one step.
  Status record(driver::Event& event, std::uint64_t& number, ordering::Clock& clock) noexcept;
  // For a caller that has asked usable(). Waits for `event`, recorded on `recorded` as its operation `number` with `clock`; costs no driver call if that is
  // already complete or ordered.
  Status wait(driver::Event& event, const StreamState& recorded, std::uint64_t number,
              const ordering::Clock& clock) noexcept;

  std::uint64_t position() const noexcept { return sequence_.load(std::memory_order_acquire); }
  // As position(), but counts work of unknown number once the native handle has been given out.
  std::uint64_t position_for_free() noexcept;

  // How many of the first operations are complete: a lower bound without a driver call.
  std::uint64_t completed() const noexcept;
  void note_completed(std::uint64_t number) noexcept;
  std::uint64_t ordered_before(ordering::StreamUid other) noexcept;  // entry of `other` in the clock

  Status query(bool& complete) noexcept;
  bool may_query_without_waiting() const noexcept;
  // Blocks the host until all that was queued before the call is complete. Raises nothing.
  Status wait_idle() noexcept;
  Status native_handle(void*& out) noexcept;

  // The oldest failure with a number up to `up_to`, removed; success if there is none.
  Status take_failure(std::uint64_t up_to = ~std::uint64_t{0}) noexcept;
  // When its oldest failure happened, in the order of all streams; 0 if it has none.
  std::uint64_t oldest_failure() noexcept;
  void on_failure(std::uint64_t tag, Status status) noexcept override;

  // Takes the stream off its device's list of busy streams if nothing was queued after `number`; says whether so.
  bool clean_if_unchanged(std::uint64_t number) noexcept;

  // Staging memory held by queued uploads; see runtime/copy/staging.h.
  struct Staged {
    std::uint64_t number = 0, bytes = 0;
  };
  std::mutex staging_mutex;
  std::deque<Staged>* staged = nullptr;  // made on first use: most streams never stage
  std::uint64_t staged_bytes = 0;

 private:
  template <class Operation>
  Status enqueue_locked(Operation&& operation, std::uint64_t* taken = nullptr) noexcept {  // under the mutex
    if (queue() == nullptr) MOJO_RETURN_IF_ERROR(make_queue());
    const std::uint64_t number = sequence_.load(std::memory_order_relaxed) + 1;
    MOJO_RETURN_IF_ERROR(operation(*queue(), number));
    sequence_.store(number, std::memory_order_release);
    if (!dirty_.load(std::memory_order_relaxed)) mark_dirty();
    if (taken != nullptr) *taken = number;
    return {};
  }
  driver::Queue* queue() const noexcept { return queue_.load(std::memory_order_acquire); }
  Status make_queue() noexcept;
  // Whether one of the first `number` operations is just being run by run_if_idle: the driver knows nothing of it.
  bool reads_at_once(std::uint64_t number) const noexcept {
    const std::uint64_t reading = at_once_.load(std::memory_order_acquire);
    return reading != 0 && reading <= number;
  }
  void mark_dirty() noexcept;

  struct Failure {
    std::uint64_t number, order;
    Status status;
  };

  DeviceState& device_;
  const std::uint64_t id_;
  const int priority_;
  const bool is_default_;
  ordering::StreamUid uid_ = 0;

  base::SmallLock mutex_;
  std::atomic<driver::Queue*> queue_{nullptr};
  std::atomic<std::uint64_t> sequence_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<std::uint64_t> at_once_{0};  // the operation that run_if_idle is running, or 0
  std::atomic<bool> dirty_{false};
  std::atomic<bool> handle_known_{false};
  ordering::Clock clock_;

  std::mutex failures_mutex_;
  std::vector<Failure> failures_;
  std::atomic<bool> failed_{false};
};

}  // namespace mojo::detail
