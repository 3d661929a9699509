#include "drivers/host/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <vector>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MOJO_FIBER_ASAN 1
#elif __has_feature(thread_sanitizer)
#define MOJO_FIBER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define MOJO_FIBER_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define MOJO_FIBER_TSAN 1
#endif
#if defined(MOJO_FIBER_ASAN)
#include <sanitizer/common_interface_defs.h>
#elif defined(MOJO_FIBER_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

// Saves the registers that a call preserves on the present stack, its pointer in *save, and goes on where `load` was saved.
extern "C" void mojo_fiber_switch(void** save, void* load) noexcept;

#if defined(__x86_64__)
asm(R"(
.text
.hidden mojo_fiber_switch
.globl mojo_fiber_switch
.type mojo_fiber_switch, @function
mojo_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size mojo_fiber_switch, . - mojo_fiber_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.hidden mojo_fiber_switch
.globl mojo_fiber_switch
.type mojo_fiber_switch, %function
mojo_fiber_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size mojo_fiber_switch, . - mojo_fiber_switch
)");
#else
#define MOJO_NO_FIBERS 1
extern "C" void mojo_fiber_switch(void**, void*) noexcept {}
#endif

namespace mojo::host {
namespace {

constexpr std::size_t stack_bytes = 128u << 10;  // of which only what is touched takes memory

thread_local FiberPool* running_pool = nullptr;

// A guard cuts its mapping in two more, and the system allows a process some 65,530 of them: stacks take at most a quarter.
// Stacks beyond that have no guard.
constexpr int most_guards = 8192;
std::atomic<int> guards{0};

bool protect(void* page, std::size_t bytes) noexcept {
  if (guards.fetch_add(1, std::memory_order_relaxed) < most_guards && mprotect(page, bytes, PROT_NONE) == 0)
    return true;
  guards.fetch_sub(1, std::memory_order_relaxed);
  return false;
}

// A stack on which mojo_fiber_switch ends up in `start`.
void* first_frame(unsigned char* top, void (*start)() noexcept) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(start);
#if defined(__aarch64__)
  auto* frame = reinterpret_cast<std::uintptr_t*>(top - 160);
  for (int i = 0; i < 20; ++i) frame[i] = 0;
  frame[11] = address;  // x30
#else
  auto* frame = reinterpret_cast<std::uintptr_t*>(top - 64);
  for (int i = 0; i < 8; ++i) frame[i] = 0;
  frame[6] = address;  // where `ret` goes; above it a return address of zero, which ends a backtrace
#endif
  return frame;
}

}  // namespace

struct FiberPool::Fiber {
  void* stack_pointer = nullptr;
  bool ended = true;
  unsigned index = 0;
  unsigned char* bottom = nullptr;
  void* fake_stack = nullptr;  // AddressSanitizer's
  void* context = nullptr;     // ThreadSanitizer's
};

struct FiberPool::Stacks {
  std::vector<Fiber> fibers;
  std::vector<std::pair<void*, std::size_t>> mappings;
  int guards = 0;
};

FiberPool::FiberPool() noexcept = default;

FiberPool::~FiberPool() {
  if (stacks_ == nullptr) return;
#if defined(MOJO_FIBER_TSAN)
  for (Fiber& fiber : stacks_->fibers) __tsan_destroy_fiber(fiber.context);
#endif
  for (const auto& [start, bytes] : stacks_->mappings) munmap(start, bytes);
  guards.fetch_sub(stacks_->guards, std::memory_order_relaxed);
}

bool FiberPool::reserve(unsigned count) noexcept {
#if defined(MOJO_NO_FIBERS)
  return false;
#else
  try {
    if (stacks_ == nullptr) stacks_ = std::make_unique<Stacks>();
    const std::size_t have = stacks_->fibers.size();
    return have >= count || add_stacks(count - static_cast<unsigned>(have));
  } catch (const std::bad_alloc&) {
    return false;
  }
#endif
}

bool FiberPool::add_stacks(unsigned count) noexcept {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t each = stack_bytes + page;
  try {
    stacks_->fibers.reserve(stacks_->fibers.size() + count);
    stacks_->mappings.reserve(stacks_->mappings.size() + 1);
  } catch (const std::bad_alloc&) {
    return false;
  }
  void* const start = mmap(nullptr, each * count, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (start == MAP_FAILED) return false;
  stacks_->mappings.emplace_back(start, each * count);
  for (unsigned i = 0; i < count; ++i) {
    auto* guard = static_cast<unsigned char*>(start) + each * i;
    if (protect(guard, page)) ++stacks_->guards;
    Fiber fiber;
    fiber.index = static_cast<unsigned>(stacks_->fibers.size());
    fiber.bottom = guard + page;
    fiber.stack_pointer = first_frame(fiber.bottom + stack_bytes, &FiberPool::fiber_main);
#if defined(MOJO_FIBER_TSAN)
    fiber.context = __tsan_create_fiber(0);
#endif
    stacks_->fibers.push_back(fiber);
  }
  return true;
}

// A fiber runs one body after the other, for ever; it is never unwound.
void FiberPool::fiber_main() noexcept {
#if defined(MOJO_FIBER_ASAN)
  {
    FiberPool& pool = *running_pool;
    __sanitizer_finish_switch_fiber(nullptr, &pool.outside_bottom_, &pool.outside_size_);
  }
#endif
  for (;;) {
    FiberPool& pool = *running_pool;
    Fiber& self = *pool.current_;
    pool.body_(pool.state_, self.index);
    self.ended = true;
    pool.leave(self);
  }
}

void FiberPool::enter(Fiber& fiber) noexcept {
  current_ = &fiber;
#if defined(MOJO_FIBER_ASAN)
  __sanitizer_start_switch_fiber(&outside_fake_stack_, fiber.bottom, stack_bytes);
#elif defined(MOJO_FIBER_TSAN)
  __tsan_switch_to_fiber(fiber.context, 0);
#endif
  mojo_fiber_switch(&outside_, fiber.stack_pointer);
#if defined(MOJO_FIBER_ASAN)
  __sanitizer_finish_switch_fiber(outside_fake_stack_, nullptr, nullptr);
#endif
}

void FiberPool::leave(Fiber& fiber) noexcept {
#if defined(MOJO_FIBER_ASAN)
  __sanitizer_start_switch_fiber(&fiber.fake_stack, outside_bottom_, outside_size_);
#elif defined(MOJO_FIBER_TSAN)
  __tsan_switch_to_fiber(outside_context_, 0);
#endif
  mojo_fiber_switch(&fiber.stack_pointer, outside_);
#if defined(MOJO_FIBER_ASAN)
  __sanitizer_finish_switch_fiber(fiber.fake_stack, &outside_bottom_, &outside_size_);
#endif
}

void FiberPool::yield() noexcept { leave(*current_); }

void FiberPool::run(unsigned count, Body body, void* state) noexcept {
  running_pool = this;
  body_ = body;
  state_ = state;
#if defined(MOJO_FIBER_TSAN)
  outside_context_ = __tsan_get_current_fiber();
#endif
  for (unsigned i = 0; i < count; ++i) stacks_->fibers[i].ended = false;
  for (unsigned left = count; left != 0;) {
    for (unsigned i = 0; i < count; ++i) {
      Fiber& fiber = stacks_->fibers[i];
      if (fiber.ended) continue;
      enter(fiber);
      if (fiber.ended) --left;
    }
  }
}

}  // namespace mojo::host
