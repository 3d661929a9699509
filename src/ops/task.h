// What it is: enqueue_cpu_task, host work of ATen's kind on a stream: pooled memory, torch's thread state set on the
//   worker, exceptions kept on the stream with the op's name.
// Ordering: enqueues on the given stream; returns before the work has run.
// Threads: any may enqueue. The work runs on a driver thread that must not take the GIL: it may hold no tensor, storage
//   or generator that the caller, and so perhaps Python, also knows.
// Errors: mojo::Error if the stream cannot take the work. What the work throws is raised later (O-08).
#pragma once

#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include "mojo/device_ptr.h"
#include "mojo/device_stream.h"

namespace mojo::ops {

// The head of a queued task: derived structs add what they need and live in memory from allocate_task. It is at the
// block's start.
struct CpuTask {
  void (*run)(CpuTask& self) = nullptr;               // may throw
  void (*destroy)(CpuTask& self) noexcept = nullptr;  // the destructor of the derived struct
  const char* name = nullptr;                         // "aten::add.out"; static storage
  std::uint32_t bytes = 0;                            // of the block
  std::int32_t threads = 0;                           // for kernels, as the caller has set it
  std::int8_t device = 0;
};

// Memory of a task. Blocks come from a pool: one thread allocates what another frees.
void* allocate_task(std::size_t bytes);
void free_task(void* block, std::size_t bytes) noexcept;

struct TaskDeleter {
  void operator()(CpuTask* task) const noexcept {
    const std::size_t bytes = task->bytes;
    task->destroy(*task);
    free_task(task, bytes);
  }
};
template <class Task = CpuTask>
using TaskOwner = std::unique_ptr<Task, TaskDeleter>;

// Hands over `task`, whose `run`, `destroy`, `name` and `bytes` are set; it is destroyed and freed in any case.
void enqueue_task(DeviceStream stream, TaskOwner<> task, std::span<const Access> accesses);

// Enqueues `work()`. `name` has static storage; it names the work in error texts and traces.
template <class F>
void enqueue_cpu_task(DeviceStream stream, const char* name, F&& work, std::span<const Access> accesses = {}) {
  struct Task : CpuTask {
    explicit Task(F&& f) : work(std::forward<F>(f)) {}
    std::decay_t<F> work;
  };
  static_assert(alignof(Task) <= alignof(std::max_align_t));
  void* const block = allocate_task(sizeof(Task));
  Task* task;
  try {
    task = new (block) Task(std::forward<F>(work));
  } catch (...) {
    free_task(block, sizeof(Task));
    throw;
  }
  task->run = [](CpuTask& self) { static_cast<Task&>(self).work(); };
  task->destroy = [](CpuTask& self) noexcept { static_cast<Task&>(self).~Task(); };
  task->name = name;
  task->bytes = sizeof(Task);
  enqueue_task(stream, TaskOwner<>(task), accesses);
}

// torch's state of a thread that runs CPU kernels for us: below autograd, autocast off, grad mode off, `threads` threads.
// The default dtype is torch's one for the process, so it is not part of this.
class KernelState {
 public:
  explicit KernelState(int threads);

 private:
  c10::impl::ExcludeDispatchKeyGuard keys_;
  c10::AutoGradMode grad_mode_{false};
};

}  // namespace mojo::ops
