#include "drivers/layers/recorded.h"

namespace mojo::layers {

std::vector<RecordedCall> CallLog::calls() const {
  std::lock_guard guard(mutex_);
  return calls_;
}

std::vector<std::string> CallLog::names() const {
  std::lock_guard guard(mutex_);
  std::vector<std::string> names;
  names.reserve(calls_.size());
  for (const RecordedCall& call : calls_) names.emplace_back(call.info.name);
  return names;
}

std::size_t CallLog::count(const std::string& name) const {
  std::lock_guard guard(mutex_);
  std::size_t n = 0;
  for (const RecordedCall& call : calls_) n += name == call.info.name ? 1u : 0u;
  return n;
}

void CallLog::clear() {
  std::lock_guard guard(mutex_);
  calls_.clear();
}

void CallLog::after(const CallInfo& call, const Status& result) noexcept {
  std::lock_guard guard(mutex_);
  calls_.push_back({call, result.code()});
}

std::unique_ptr<driver::Driver> make_recorded(std::unique_ptr<driver::Driver> inner, std::shared_ptr<CallLog> log) {
  return make_hooked(std::move(inner), std::move(log));
}

}  // namespace mojo::layers
