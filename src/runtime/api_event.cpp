#include "mojo/device_event.h"

#include "mojo/error.h"
#include "mojo/process.h"
#include "runtime/device_state.h"

namespace mojo {

DeviceEvent::~DeviceEvent() {
  if (state_ == nullptr) return;
  if (in_bad_fork()) return;  // the child has none of the driver's threads, and their locks may be held for ever
  std::unique_ptr<detail::EventState> state(state_);
  auto& device = state->device();
  device.recycle(std::move(state));
}

int DeviceEvent::device_index() const noexcept { return state_->device().index(); }
bool DeviceEvent::recorded() const noexcept { return state_->recorded(); }

bool DeviceEvent::query() const {
  bool complete = false;
  throw_if_failed(state_->query(complete));
  return complete;
}

void DeviceEvent::synchronize() const {
  detail::StreamState* stream = nullptr;
  std::uint64_t number = 0;
  throw_if_failed(state_->synchronize(stream, number));
  if (stream != nullptr) throw_if_failed(stream->take_failure(number));
}

double DeviceEvent::elapsed_ms(const DeviceEvent& end) const {
  double milliseconds = 0;
  throw_if_failed(end.state_->elapsed_since(*state_, milliseconds));
  return milliseconds;
}

}  // namespace mojo
