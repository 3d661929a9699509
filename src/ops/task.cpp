#include "ops/task.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/Exception.h>
#include <c10/util/thread_name.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "mojo/status.h"
#include "ops/shape_probe.h"
#include "torch_backend/errors.h"

namespace mojo::ops {

namespace {

// --- the pool ---
// Blocks of one size on a lock-free stack that is only ever pushed to or taken whole, so it has no ABA problem. A thread
// that needs blocks takes all that have come back and hands them out from a list of its own.

constexpr std::size_t block_bytes = 1024;

struct FreeBlock {
  FreeBlock* next;
};

std::atomic<FreeBlock*> returned{nullptr};

void push_returned(FreeBlock* first, FreeBlock* last) noexcept {
  last->next = returned.load(std::memory_order_relaxed);
  while (!returned.compare_exchange_weak(last->next, first, std::memory_order_release, std::memory_order_relaxed)) {}
}

struct OwnBlocks {
  FreeBlock* first = nullptr;
  ~OwnBlocks() {
    if (first == nullptr) return;
    FreeBlock* last = first;
    while (last->next != nullptr) last = last->next;
    push_returned(first, last);
    first = nullptr;
  }
};
thread_local OwnBlocks own_blocks;

// --- running ---

std::string context_of(const CpuTask& task) {
  return std::string("while running ") + task.name + " on mojo:" + std::to_string(static_cast<int>(task.device));
}

Status run_task(void* state) noexcept {
  const TaskOwner<> task(static_cast<CpuTask*>(state));
  try {
    const KernelState kernel_state(task->threads);
    task->run(*task);
    return {};
  } catch (c10::Error& error) {
    // Kept as it is, type and all, so that Python raises what CPU would.
    error.add_context(context_of(*task));
    return {StatusCode::task_failed, error.what_without_backtrace(), std::current_exception()};
  } catch (const std::exception& error) {
    const std::string text = std::string(error.what()) + " (" + context_of(*task) + ")";
    return {StatusCode::task_failed, text,
            std::make_exception_ptr(c10::Error({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, text))};
  } catch (...) {
    return {StatusCode::task_failed, "an exception of unknown type (" + context_of(*task) + ")",
            std::current_exception()};
  }
}

// How many threads the caller has set for kernels. Each of torch's threads for backward keeps the number that was set when
// it started: there it is the number of the last call from any other thread, which forward has made.
std::int32_t wanted_threads() {
  static constinit std::atomic<std::int32_t> last{0};
  static thread_local const bool runs_backward = c10::getThreadName().starts_with("pt_autograd");
  if (runs_backward)
    if (const std::int32_t threads = last.load(std::memory_order_relaxed); threads != 0) return threads;
  const std::int32_t threads = at::get_num_threads();
  if (!runs_backward && last.load(std::memory_order_relaxed) != threads) last.store(threads, std::memory_order_relaxed);
  return threads;
}

void drop_task(void* state) noexcept { TaskDeleter()(static_cast<CpuTask*>(state)); }

}  // namespace

void* allocate_task(std::size_t bytes) {
  if (bytes > block_bytes) return ::operator new(bytes);
  FreeBlock*& first = own_blocks.first;
  if (first == nullptr) first = returned.exchange(nullptr, std::memory_order_acquire);
  if (first == nullptr) return ::operator new(block_bytes);
  return std::exchange(first, first->next);
}

void free_task(void* block, std::size_t bytes) noexcept {
  if (bytes > block_bytes) {
    ::operator delete(block);
    return;
  }
  auto* const free = new (block) FreeBlock{nullptr};
  push_returned(free, free);
}

void enqueue_task(DeviceStream stream, TaskOwner<> task, std::span<const Access> accesses) {
  refuse_while_probing();
  task->threads = wanted_threads();
  task->device = static_cast<std::int8_t>(stream.device_index());
  torch_backend::translated([&] {
    stream.enqueue_host_task({.run = run_task, .drop = drop_task, .state = task.get(), .name = task->name}, accesses);
  });
  static_cast<void>(task.release());  // the stream owns it now
}

KernelState::KernelState(int threads)
    : keys_(c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset) {
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
}

}  // namespace mojo::ops
