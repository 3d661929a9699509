#include "runtime/event_state.h"

#include "runtime/device_state.h"
#include "runtime/stream_state.h"

namespace mojo::detail {

bool EventState::recorded() noexcept {
  const std::lock_guard lock(mutex_);
  return stream_ != nullptr;
}

Status EventState::record(StreamState& stream) noexcept {
  if (&stream.device() != &device_) {
    return {StatusCode::invalid_argument, "an event of device " + std::to_string(device_.index()) +
                                              " cannot be recorded on a stream of device " +
                                              std::to_string(stream.device().index())};
  }
  MOJO_RETURN_IF_ERROR(runtime::usable());
  const std::lock_guard lock(mutex_);
  const bool was_known = known_complete_.exchange(false, std::memory_order_relaxed);
  Status status = stream.record(*event_, number_, clock_);
  if (!status.ok()) {
    known_complete_.store(was_known, std::memory_order_relaxed);
    return status;
  }
  stream_ = &stream;
  return {};
}

Status EventState::make_wait(StreamState& stream) noexcept {
  MOJO_RETURN_IF_ERROR(runtime::usable());
  const std::lock_guard lock(mutex_);
  if (stream_ == nullptr) return {};
  return stream.wait(*event_, *stream_, number_, clock_);
}

Status EventState::query(bool& complete) noexcept {
  MOJO_RETURN_IF_ERROR(runtime::usable());
  complete = known_complete_.load(std::memory_order_acquire);
  if (complete) return {};
  const std::lock_guard lock(mutex_);
  complete = stream_ == nullptr || stream_->completed() >= number_;
  if (!complete) {
    MOJO_RETURN_IF_ERROR(event_->query(complete));
    if (complete) stream_->note_completed(number_);
  }
  if (complete) known_complete_.store(true, std::memory_order_release);
  return {};
}

Status EventState::synchronize(StreamState*& stream, std::uint64_t& number) noexcept {
  bool complete = false;
  MOJO_RETURN_IF_ERROR(query(complete));
  {
    const std::lock_guard lock(mutex_);
    stream = stream_;
    number = number_;
  }
  if (complete) {
    runtime::count_host_wait();
    return {};
  }
  MOJO_RETURN_IF_ERROR(runtime::host_wait([this]() noexcept { return event_->synchronize(); }));
  const std::lock_guard lock(mutex_);
  // Another thread may have recorded the event again meanwhile: then the driver waited for that record instead, and
  // nothing is known of this one.
  if (stream_ == stream && number_ == number) stream->note_completed(number);
  return {};
}

Status EventState::elapsed_since(EventState& start, double& milliseconds) noexcept {
  for (EventState* event : {&start, this}) {
    if (!event->options_.timing) {
      return {StatusCode::invalid_argument, "both events must be created with timing to measure the time between them"};
    }
    if (!event->recorded()) {
      return {StatusCode::failed_precondition, "both events must be recorded before the time between them is measured"};
    }
    bool complete = false;
    MOJO_RETURN_IF_ERROR(event->query(complete));
    if (!complete) {
      return {StatusCode::failed_precondition, "both events must be complete before the time between them is measured"};
    }
  }
  return event_->elapsed_since(*start.event_, milliseconds);
}

}  // namespace mojo::detail
