#include "drivers/host/fork_epoch.h"

#include <pthread.h>

namespace mojo::host {

std::atomic<std::uint32_t> current_fork_epoch{1};

namespace {
// Runs in the child, where the worker threads no longer exist and any lock may be held for ever.
void in_child() noexcept { current_fork_epoch.fetch_add(1, std::memory_order_relaxed); }
}  // namespace

void watch_forks() noexcept {
  static const int installed = pthread_atfork(nullptr, nullptr, in_child);
  static_cast<void>(installed);
}

}  // namespace mojo::host
