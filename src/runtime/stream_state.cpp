#include "runtime/stream_state.h"

#include <algorithm>

#include "runtime/device_state.h"
#include "runtime/registry.h"

namespace mojo::detail {
namespace {
std::atomic<std::uint64_t> failure_order{0};
}

Status StreamState::make_queue() noexcept {
  std::unique_ptr<driver::Queue> made;
  driver::QueueOptions options;
  options.priority = priority_;
  options.is_default = is_default_;
  options.failures = this;
  MOJO_RETURN_IF_ERROR(device_.driver().create_queue(options, made));
  queue_.store(made.release(), std::memory_order_release);  // streams, and so their queues, live until the process ends
  return {};
}

void StreamState::mark_dirty() noexcept {
  dirty_.store(true, std::memory_order_relaxed);
  device_.add_dirty(*this);
}

bool StreamState::clean_if_unchanged(std::uint64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  if (sequence_.load(std::memory_order_relaxed) != number) return false;
  if (dirty_.exchange(false, std::memory_order_relaxed)) device_.remove_dirty(*this);  // else another thread did it
  return true;
}

Status StreamState::record(driver::Event& event, std::uint64_t& number, ordering::Clock& clock) noexcept {
  return enqueue(
      [&](driver::Queue& queue, std::uint64_t n) noexcept {
        MOJO_RETURN_IF_ERROR(queue.record(event, n));
        clock = clock_;
        return Status{};
      },
      &number);
}

Status StreamState::wait(driver::Event& event, const StreamState& recorded, std::uint64_t number,
                         const ordering::Clock& clock) noexcept {
  if (&recorded == this) return {};
  if (recorded.completed() >= number) return {};
  const std::lock_guard lock(mutex_);
  if (clock_.dominates({recorded.uid_, number})) return {};  // an earlier wait has seen to it
  MOJO_RETURN_IF_ERROR(
      enqueue_locked([&](driver::Queue& queue, std::uint64_t n) noexcept { return queue.wait(event, n); }));
  clock_.merge(clock, [](ordering::Position p) {
    const StreamState* stream = runtime::Registry::instance().streams().at(p.stream);
    return stream != nullptr && stream->completed() >= p.sequence;
  });
  clock_.advance(recorded.uid_, number);
  return {};
}

std::uint64_t StreamState::position_for_free() noexcept {
  if (!handle_known_.load(std::memory_order_acquire)) [[likely]]
    return position();
  std::uint64_t number = 0;
  driver::HostTask marker;
  marker.run = [](void*) noexcept { return Status{}; };
  marker.name = "free";
  // Work queued through the native handle has no number: a marker behind it has one.
  const Status status =
      enqueue([&](driver::Queue& queue, std::uint64_t n) noexcept { return queue.host_task(marker, {}, n); }, &number);
  return status.ok() ? number : position();
}

std::uint64_t StreamState::completed() const noexcept {
  const driver::Queue* q = queue();
  const std::uint64_t known = completed_.load(std::memory_order_acquire);
  return q == nullptr ? known : std::max(known, q->completed_tag());
}

void StreamState::note_completed(std::uint64_t number) noexcept {
  std::uint64_t known = completed_.load(std::memory_order_relaxed);
  while (known < number && !completed_.compare_exchange_weak(known, number, std::memory_order_release)) {}
}

std::uint64_t StreamState::ordered_before(ordering::StreamUid other) noexcept {
  const std::lock_guard lock(mutex_);
  return clock_.sequence_of(other);
}

Status StreamState::query(bool& complete) noexcept {
  MOJO_RETURN_IF_ERROR(runtime::usable());
  driver::Queue* q = queue();
  const std::uint64_t number = position();
  if (q == nullptr || (completed() >= number && !handle_known_.load(std::memory_order_relaxed))) {
    complete = true;
    return {};
  }
  MOJO_RETURN_IF_ERROR(q->query(complete));
  if (complete && reads_at_once(number)) {
    complete = !device_.capabilities().has(driver::Capability::multiple_queues);  // with one queue a query waits
    if (complete) const std::lock_guard lock(mutex_);
  }
  if (complete) note_completed(number);
  return {};
}

bool StreamState::may_query_without_waiting() const noexcept {
  return device_.capabilities().has(driver::Capability::multiple_queues);
}

Status StreamState::wait_idle() noexcept {
  bool complete = false;
  MOJO_RETURN_IF_ERROR(query(complete));
  if (complete) {
    runtime::count_host_wait();
    return {};
  }
  const std::uint64_t number = position();
  driver::Queue* q = queue();
  MOJO_RETURN_IF_ERROR(runtime::host_wait([q]() noexcept { return q->synchronize(); }));
  if (reads_at_once(number)) {
    const std::lock_guard lock(mutex_);  // held until it has been read
  }
  note_completed(number);
  return {};
}

Status StreamState::native_handle(void*& out) noexcept {
  MOJO_RETURN_IF_ERROR(runtime::usable());
  const std::lock_guard lock(mutex_);
  if (queue() == nullptr) MOJO_RETURN_IF_ERROR(make_queue());
  out = queue()->native_handle();
  handle_known_.store(!device_.host_accessible(), std::memory_order_release);
  return {};
}

void StreamState::on_failure(std::uint64_t tag, Status status) noexcept {
  const std::lock_guard lock(failures_mutex_);
  failures_.push_back({tag, failure_order.fetch_add(1) + 1, std::move(status)});
  failed_.store(true, std::memory_order_release);
}

Status StreamState::take_failure(std::uint64_t up_to) noexcept {
  if (!failed_.load(std::memory_order_acquire)) [[likely]]
    return {};
  const std::lock_guard lock(failures_mutex_);
  // Reported in the order in which the queue ran them, which is that of their numbers: the first is the oldest.
  if (failures_.empty() || failures_.front().number > up_to) return {};
  Status status = std::move(failures_.front().status);
  failures_.erase(failures_.begin());
  failed_.store(!failures_.empty(), std::memory_order_release);
  return status;
}

std::uint64_t StreamState::oldest_failure() noexcept {
  if (!failed_.load(std::memory_order_acquire)) return 0;
  const std::lock_guard lock(failures_mutex_);
  return failures_.empty() ? 0 : failures_.front().order;
}

}  // namespace mojo::detail
