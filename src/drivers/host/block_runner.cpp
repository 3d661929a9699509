#include "drivers/host/block_runner.h"

#include <new>

namespace mojo::host {

BlockRunner& BlockRunner::of_this_thread() noexcept {
  thread_local BlockRunner runner;
  return runner;
}

bool BlockRunner::prepare(const LaunchState& launch) noexcept {
  if (launch.shared_memory_bytes > shared_bytes_) {
    const std::uint32_t lines = (launch.shared_memory_bytes + sizeof(SharedLine) - 1) / sizeof(SharedLine);
    shared_.reset(new (std::nothrow) SharedLine[lines]);
    shared_bytes_ = shared_ != nullptr ? static_cast<std::uint32_t>(lines * sizeof(SharedLine)) : 0;
    if (shared_ == nullptr) return false;
  }
  if (launch.stacks && !fibers_.reserve(launch.block_threads)) return false;
  work_ = launch.work;
  work_.shared_memory = launch.shared_memory_bytes != 0 ? shared_[0].bytes : nullptr;
  work_.barrier = [](void* self) { static_cast<BlockRunner*>(self)->fibers_.yield(); };
  work_.state = this;
  entry_ = launch.entry;
  stacks_ = launch.stacks;
  threads_ = launch.block_threads;
  return true;
}

void BlockRunner::run(std::uint64_t first, std::uint64_t last) noexcept {
  if (!stacks_) return entry_->run_blocks(&work_, first, last);
  for (block_ = first; block_ < last; ++block_) {
    fibers_.run(
        threads_,
        [](void* state, unsigned thread) {
          auto& self = *static_cast<BlockRunner*>(state);
          self.entry_->run_thread(&self.work_, self.block_, thread);
        },
        this);
  }
}

}  // namespace mojo::host
