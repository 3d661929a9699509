#include "drivers/layers/faulty.h"

namespace mojo::layers {

void Faults::fail_nth(std::uint64_t n, Status status) {
  std::lock_guard guard(mutex_);
  all_.plan = {all_.calls + n, std::move(status)};
}

void Faults::fail_nth_of(const std::string& name, std::uint64_t n, Status status) {
  std::lock_guard guard(mutex_);
  Counter& counter = of_name_[name];
  counter.plan = {counter.calls + n, std::move(status)};
}

void Faults::clear() {
  std::lock_guard guard(mutex_);
  all_ = {};
  of_name_.clear();
  triggered_ = false;
}

std::uint64_t Faults::calls() const {
  std::lock_guard guard(mutex_);
  return all_.calls;
}

std::uint64_t Faults::calls_of(const std::string& name) const {
  std::lock_guard guard(mutex_);
  const auto it = of_name_.find(name);
  return it != of_name_.end() ? it->second.calls : 0;
}

bool Faults::triggered() const {
  std::lock_guard guard(mutex_);
  return triggered_;
}

Status Faults::count(Counter& counter) {
  if (++counter.calls != counter.plan.at) return {};
  counter.plan.at = 0;
  triggered_ = true;
  return counter.plan.status;
}

Status Faults::before(const CallInfo& call) noexcept {
  std::lock_guard guard(mutex_);
  Status of_all = count(all_);
  Status of_name = count(of_name_[call.name]);
  return of_all.ok() ? of_name : of_all;
}

std::unique_ptr<driver::Driver> make_faulty(std::unique_ptr<driver::Driver> inner, std::shared_ptr<Faults> faults) {
  return make_hooked(std::move(inner), std::move(faults));
}

}  // namespace mojo::layers
