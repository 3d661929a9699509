// What it is: LaunchState, one queued launch with its arguments, shared by the worker that runs it and those that help;
//   LaunchPool, where they come from.
// Ordering: blocks are handed out in order and run in any. Threads: any; the state goes back with its last reference.
// Errors: `prepare` says what is wrong with a launch before anything is queued.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/small_lock.h"
#include "driver/driver.h"
#include "drivers/host/image.h"

namespace mojo::host {

// The limits are CUDA's, so that what runs here runs there.
inline constexpr driver::Dim3 max_grid{0x7fffffffu, 65535, 65535};
inline constexpr driver::Dim3 max_block{1024, 1024, 64};
inline constexpr std::uint32_t max_block_threads = 1024;
inline constexpr std::uint32_t max_shared_memory = 64u << 10;
inline constexpr std::uint32_t max_argument_bytes = 4096;

struct LaunchState {
  // Hands out up to `wanted` blocks, at least one; false if there are none left.
  bool take(std::uint64_t wanted, std::uint64_t& first, std::uint64_t& last) noexcept;
  // How many nobody has taken.
  std::uint64_t left() const noexcept { return blocks - next_block.load(std::memory_order_relaxed); }

  std::shared_ptr<const HostImage> image;
  const MojoHostEntry* entry = nullptr;
  MojoHostWork work{};  // what each worker's copy begins as
  std::uint32_t shared_memory_bytes = 0;
  std::uint32_t block_threads = 1;
  std::uint64_t blocks = 1;
  bool stacks = false;  // threads of a block need stacks of their own

  std::atomic<std::uint64_t> next_block{0};
  std::atomic<std::uint32_t> helpers{0};  // workers besides the one whose queue it is
  std::atomic<std::uint32_t> refs{1};
  std::atomic<bool> no_help{false};    // a helper lacked memory
  LaunchState* listed_next = nullptr;  // those that could do with help; under the scheduler's lock
  LaunchState* pool_next = nullptr;

  static constexpr std::uint32_t inline_bytes = 256;
  alignas(16) unsigned char inline_arguments[inline_bytes];
  std::unique_ptr<unsigned char[]> large_arguments;
};

class LaunchPool {
 public:
  ~LaunchPool();
  // Checks the launch and copies what it needs.
  Status prepare(const driver::Launch& launch, LaunchState*& out) noexcept;
  void unref(LaunchState* state) noexcept {
    if (state->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) give(state);
  }

 private:
  LaunchState* take() noexcept;
  void give(LaunchState* state) noexcept;

  base::SmallLock lock_;
  LaunchState* free_ = nullptr;
};

}  // namespace mojo::host
