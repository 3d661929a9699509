// What it is: the body of DeviceStream::enqueue_host_func for callables.
// Ordering: as enqueue_host_func. Threads: the callable runs, and is destroyed, on a thread of the driver.
// Errors: what it throws is kept on the stream.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "mojo/device_stream.h"

namespace mojo {
namespace detail {

// What a queued callable is to the library: one allocation, two functions.
template <class Callable>
HostTask task_of(Callable* callable) noexcept {
  HostTask task;
  task.run = [](void* raw) noexcept -> Status {
    const std::unique_ptr<Callable> held(static_cast<Callable*>(raw));
    return run_guarded([](void* c) { std::invoke(*static_cast<Callable*>(c)); }, raw);
  };
  task.drop = [](void* raw) noexcept { delete static_cast<Callable*>(raw); };
  task.state = callable;
  task.name = "host function";
  return task;
}

}  // namespace detail

template <class Callable>
requires std::invocable < std::decay_t<Callable>
& > void DeviceStream::enqueue_host_func(Callable&& callable) const {
  auto held = std::make_unique<std::decay_t<Callable>>(std::forward<Callable>(callable));
  enqueue_host_task(detail::task_of(held.get()));
  static_cast<void>(held.release());  // the task owns it now
}

}  // namespace mojo
