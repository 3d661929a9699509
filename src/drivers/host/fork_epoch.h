// What it is: a number that differs in a forked child from what it was in its parent.
// Ordering: none. Threads: any; the child of a fork has one thread when it changes. Errors: none.
#pragma once

#include <atomic>
#include <cstdint>

namespace mojo::host {

extern std::atomic<std::uint32_t> current_fork_epoch;

// Starts at 1. Reading it is one load: no getpid in the fast paths.
inline std::uint32_t fork_epoch() noexcept { return current_fork_epoch.load(std::memory_order_relaxed); }

// Installs the fork handler, once a process.
void watch_forks() noexcept;

}  // namespace mojo::host
