// What it is: the body of DeviceStream::enqueue_host_func for callables.
// Ordering: as enqueue_host_func. Threads: the callable runs, and is destroyed, on a thread of the driver.
// Errors: invalid_argument for a null pointer or an empty std::function; what the callable throws is kept on the stream.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "mojo/device_stream.h"
#include "mojo/error.h"

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

// Pointers to functions and wrappers such as std::function. A lambda compares with nullptr too, where it captures nothing,
// but never is null.
template <class Callable>
concept may_be_empty = requires(const Callable& callable) {
  callable == nullptr;
}
&&(std::is_pointer_v<Callable> || std::is_member_pointer_v<Callable> ||
   !requires(const Callable& callable) { +callable; });

}  // namespace detail

template <class Callable>
requires std::invocable < std::decay_t<Callable>
& > void DeviceStream::enqueue_host_func(Callable&& callable) const {
  if constexpr (detail::may_be_empty<std::decay_t<Callable>>) {
    if (callable == nullptr) {
      throw_status({StatusCode::invalid_argument, "enqueue_host_func: the function is null"});
    }
  }
  auto held = std::make_unique<std::decay_t<Callable>>(std::forward<Callable>(callable));
  enqueue_host_task(detail::task_of(held.get()));
  static_cast<void>(held.release());  // the task owns it now
}

}  // namespace mojo
