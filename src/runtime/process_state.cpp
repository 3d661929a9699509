#include "runtime/process_state.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "base/env.h"
#include "driver/driver.h"
#include "runtime/registry.h"

namespace mojo {
namespace runtime {

std::atomic<Phase> process_phase{Phase::running};

namespace {

std::atomic<void* (*)() noexcept> hook_before{nullptr};
std::atomic<void (*)(void*) noexcept> hook_after{nullptr};
std::atomic<void (*)() noexcept> hook_refused{nullptr};
thread_local std::uint64_t waits = 0;

}  // namespace

Status refusal() noexcept {
  if (driver::in_host_task()) {
    return {StatusCode::failed_precondition,
            "the device API cannot be called from inside a host function or host task"};
  }
  if (process_phase.load(std::memory_order_relaxed) == Phase::forked) {
    return {StatusCode::forked,
            "the device cannot be used in a process forked after the device had been used; start the process with the "
            "'spawn' method, or fork before the first use"};
  }
  if (const auto refused = hook_refused.load(std::memory_order_acquire)) refused();
  return {StatusCode::shut_down, "the device runtime has been shut down because the process is exiting"};
}

void device_was_opened() noexcept {
  static std::once_flag once;
  std::call_once(once, [] {
    // The child has none of the driver's threads, and their locks may be held for ever: it must not touch the device.
    pthread_atfork(nullptr, nullptr, [] { process_phase.store(Phase::forked, std::memory_order_relaxed); });
    // Registered after the libraries that tasks run in were loaded, so it runs before their static objects go.
    std::atexit([] { shut_down(); });
  });
}

bool begin_shut_down() noexcept {
  Phase expected = Phase::running;
  return process_phase.compare_exchange_strong(expected, Phase::shutting_down);
}

void reset_process_state_for_test() noexcept { process_phase.store(Phase::running); }

void count_host_wait() noexcept { ++waits; }

HostWait::HostWait() noexcept
    : hooks_{hook_before.load(std::memory_order_acquire), hook_after.load(std::memory_order_acquire), nullptr},
      token_(hooks_.before ? hooks_.before() : nullptr) {
  ++waits;
}

HostWait::~HostWait() {
  if (hooks_.after) hooks_.after(token_);
}

}  // namespace runtime

void set_wait_hooks(WaitHooks hooks) noexcept {
  runtime::hook_before.store(hooks.before, std::memory_order_release);
  runtime::hook_after.store(hooks.after, std::memory_order_release);
  runtime::hook_refused.store(hooks.refused_at_exit, std::memory_order_release);
}

std::uint64_t host_waits() noexcept { return runtime::waits; }
bool in_bad_fork() noexcept { return runtime::process_phase.load(std::memory_order_relaxed) == runtime::Phase::forked; }
bool shutting_down() noexcept {
  return runtime::process_phase.load(std::memory_order_relaxed) == runtime::Phase::shutting_down;
}
bool in_host_task() noexcept { return driver::in_host_task(); }

void shut_down() noexcept {
  if (runtime::begin_shut_down()) runtime::Registry::instance().shut_down();
}

std::vector<SettingInfo> settings() {
  std::vector<SettingInfo> infos;
  for (auto& row : base::setting_rows()) {
    infos.push_back({std::move(row.name), std::move(row.value), std::move(row.source), std::move(row.accepted),
                     std::move(row.description)});
  }
  return infos;
}

Status check_settings() {
  base::Settings settings;
  MOJO_RETURN_IF_ERROR(base::load_settings(settings));
  return runtime::Registry::instance().choose_driver();
}

Status set_allocation_policy(const AllocationPolicy& policy) noexcept {
  return runtime::Registry::instance().set_allocation_policy(policy);
}

std::vector<std::string> unknown_settings() { return base::unknown_setting_texts(); }

}  // namespace mojo
