#include "mojo/completion_flag.h"

#include <atomic>
#include <memory>

#include "base/report.h"
#include "mojo/error.h"
#include "mojo/process.h"
#include "runtime/device_state.h"
#include "runtime/flag_state.h"

namespace mojo {

CompletionFlag::CompletionFlag(const DeviceContext& context) : state_(nullptr) {
  throw_if_failed(runtime::usable());
  auto state = std::make_unique<detail::FlagState>();
  state->device = context.state();
  throw_if_failed(state->device->driver().allocate_value(state->address));
  state_ = state.release();
}

CompletionFlag::~CompletionFlag() {
  if (state_ == nullptr) return;
  const std::unique_ptr<detail::FlagState> state(state_);
  if (in_bad_fork() || shutting_down()) return;
  auto& driver = state->device->driver();
  const Status abandoned = driver.abandon_value(
      state->address,
      {StatusCode::failed_precondition, "the completion flag that the stream waited for was destroyed"});
  if (!abandoned.ok()) base::report("destroying a completion flag", abandoned);
  const Status freed = driver.free_value(state->address);
  if (!freed.ok()) base::report("destroying a completion flag", freed);
}

void CompletionFlag::signal(std::uint64_t value) const {
  if (in_bad_fork() || shutting_down()) throw_if_failed(runtime::usable());
  // Allowed inside host functions: that is what feeds a stream from a callback.
  throw_if_failed(state_->device->driver().signal_value(state_->address, value));
}

std::uint64_t CompletionFlag::value() const noexcept {
  return std::atomic_ref<std::uint64_t>(*state_->address).load(std::memory_order_acquire);
}

}  // namespace mojo
