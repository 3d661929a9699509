#include "runtime/device_state.h"

#include <algorithm>

#include "runtime/registry.h"

namespace mojo::detail {
namespace {
constexpr std::size_t most_spare_events = 1024;
}

DeviceState::DeviceState(int index, std::string driver_name, std::unique_ptr<driver::Device> device,
                         const base::Settings& settings, const AllocationPolicy& policy)
    : index_(index),
      driver_name_(std::move(driver_name)),
      device_(std::move(device)),
      capabilities_(device_->capabilities()),
      staging_bytes_(settings.staging_bytes),
      checks_buffers_(settings.check_driver),
      segments_(*device_),
      allocator_(segments_, fences_, {.device_name = "device " + std::to_string(index), .policy = policy}) {
  default_stream_ = add_stream(0, true);
}

StreamState* DeviceState::add_stream(int priority, bool is_default) {
  auto& registry = runtime::Registry::instance();
  const std::lock_guard lock(streams_mutex_);
  auto* stream = new StreamState(*this, streams_.size(), priority, is_default);  // lives until the process ends
  {
    const std::lock_guard all(registry.streams_mutex());
    if (registry.streams().size() == 0) registry.streams().append(nullptr);  // 0 is no stream
    stream->set_uid(static_cast<ordering::StreamUid>(registry.streams().size()));
    registry.streams().append(stream);
  }
  streams_.append(stream);
  return stream;
}

Status DeviceState::create_stream(int priority, StreamState*& out) noexcept {
  MOJO_RETURN_IF_ERROR(runtime::usable());
  if (!capabilities_.has(driver::Capability::multiple_queues)) {
    out = default_stream_;
    return {};
  }
  const auto range = device_->priority_range();
  out = add_stream(std::clamp(priority, range.greatest, range.least), false);
  return {};
}

Status DeviceState::create_event(EventOptions options, std::unique_ptr<EventState>& out) noexcept {
  MOJO_RETURN_IF_ERROR(runtime::usable());
  if (!options.timing && !options.blocking) {
    const std::lock_guard lock(events_mutex_);
    if (!spare_events_.empty()) {
      out = std::move(spare_events_.back());
      spare_events_.pop_back();
      return {};
    }
  }
  std::unique_ptr<driver::Event> event;
  MOJO_RETURN_IF_ERROR(device_->create_event({.timing = options.timing, .blocking = options.blocking}, event));
  out = std::make_unique<EventState>(*this, options, std::move(event));
  return {};
}

void DeviceState::recycle(std::unique_ptr<EventState> event) noexcept {
  if (event == nullptr || event->options().timing || event->options().blocking) return;
  event->reset();
  const std::lock_guard lock(events_mutex_);
  if (spare_events_.size() < most_spare_events) spare_events_.push_back(std::move(event));
}

Status DeviceState::order_after(StreamState& later, StreamState& earlier) noexcept {
  if (&later == &earlier) return runtime::usable();
  std::unique_ptr<EventState> event;
  MOJO_RETURN_IF_ERROR(create_event({}, event));
  MOJO_RETURN_IF_ERROR(event->record(earlier));
  Status status = event->make_wait(later);
  recycle(std::move(event));
  return status;
}

void DeviceState::add_dirty(StreamState& stream) noexcept {
  const std::lock_guard lock(dirty_mutex_);
  dirty_.push_back(&stream);
}

void DeviceState::remove_dirty(StreamState& stream) noexcept {
  const std::lock_guard lock(dirty_mutex_);
  // From the end: synchronize goes through them backwards.
  const auto found = std::find(dirty_.rbegin(), dirty_.rend(), &stream);
  *found = dirty_.back();
  dirty_.pop_back();
}

Status DeviceState::synchronize() noexcept {
  MOJO_RETURN_IF_ERROR(runtime::usable());
  std::vector<StreamState*> busy;
  {
    // A copy: another thread that synchronizes meanwhile has to wait for the same streams.
    const std::lock_guard lock(dirty_mutex_);
    busy = dirty_;
  }
  Status status;
  std::vector<StreamState*> settled;
  for (auto it = busy.rbegin(); it != busy.rend() && status.ok(); ++it) {
    StreamState& stream = **it;
    const std::uint64_t number = stream.position();
    status = stream.wait_idle();
    if (status.ok() && stream.clean_if_unchanged(number) && stream.oldest_failure() != 0) settled.push_back(&stream);
  }
  StreamState* failed = nullptr;
  {
    const std::lock_guard lock(dirty_mutex_);
    // Streams without a failure leave the list; the oldest failure of the rest is raised now.
    for (StreamState* stream : settled) {
      if (std::find(unsettled_.begin(), unsettled_.end(), stream) == unsettled_.end()) unsettled_.push_back(stream);
    }
    std::erase_if(unsettled_, [](StreamState* stream) { return stream->oldest_failure() == 0; });
    for (const auto* list : {&unsettled_, &dirty_}) {
      for (StreamState* stream : *list) {
        const std::uint64_t order = stream->oldest_failure();
        if (order != 0 && (failed == nullptr || order < failed->oldest_failure())) failed = stream;
      }
    }
  }
  MOJO_RETURN_IF_ERROR(status);
  return failed == nullptr ? Status{} : failed->take_failure();
}

}  // namespace mojo::detail
