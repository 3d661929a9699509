// What it is: FiberPool, stacks on one thread of the system between which it switches: the threads of a block that
//   waits at barriers.
// Ordering: one fiber runs at a time, until it yields or ends. Threads: a pool belongs to the thread that made it.
// Errors: `reserve` is false where there is no memory for the stacks, or the processor is not known.
#pragma once

#include <cstddef>
#include <memory>

namespace mojo::host {

class FiberPool {
 public:
  // What fiber `index` runs, from start to end.
  using Body = void (*)(void* state, unsigned index);

  FiberPool() noexcept;
  ~FiberPool();
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;

  bool reserve(unsigned count) noexcept;
  // Runs body(state, 0) to body(state, count - 1), each on a stack of its own: each in turn until it yields or ends, and
  // then all again that have not ended.
  void run(unsigned count, Body body, void* state) noexcept;
  // From inside a body.
  void yield() noexcept;

 private:
  struct Fiber;
  struct Stacks;

  static void fiber_main() noexcept;
  void enter(Fiber& fiber) noexcept;
  void leave(Fiber& fiber) noexcept;
  bool add_stacks(unsigned count) noexcept;

  std::unique_ptr<Stacks> stacks_;
  Body body_ = nullptr;
  void* state_ = nullptr;
  Fiber* current_ = nullptr;
  void* outside_ = nullptr;  // stack pointer of whoever called run
  // What sanitizers want to know of it.
  void* outside_fake_stack_ = nullptr;
  const void* outside_bottom_ = nullptr;
  std::size_t outside_size_ = 0;
  void* outside_context_ = nullptr;
};

}  // namespace mojo::host
