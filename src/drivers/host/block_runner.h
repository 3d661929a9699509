// What it is: BlockRunner, what one worker runs blocks with: the block's dynamic shared memory and its threads' stacks.
// Ordering: one block after the other. Threads: each has its own. Errors: `prepare` is false where memory is lacking.
#pragma once

#include <cstdint>
#include <memory>

#include "drivers/host/fiber.h"
#include "drivers/host/launch.h"

namespace mojo::host {

class BlockRunner {
 public:
  static BlockRunner& of_this_thread() noexcept;

  bool prepare(const LaunchState& launch) noexcept;
  // The blocks first <= b < last of the launch that was prepared.
  void run(std::uint64_t first, std::uint64_t last) noexcept;

 private:
  struct alignas(64) SharedLine {
    unsigned char bytes[64];
  };

  MojoHostWork work_{};
  const MojoHostEntry* entry_ = nullptr;
  bool stacks_ = false;
  unsigned threads_ = 1;
  std::uint64_t block_ = 0;
  std::unique_ptr<SharedLine[]> shared_;
  std::uint32_t shared_bytes_ = 0;
  FiberPool fibers_;
};

}  // namespace mojo::host
