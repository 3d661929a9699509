#include "mojo/device_stream.h"

#include <memory>

#include "mojo/completion_flag.h"
#include "mojo/error.h"
#include "runtime/copy/transfer.h"
#include "runtime/device_state.h"
#include "runtime/flag_state.h"
#include "runtime/registry.h"

namespace mojo {

std::uint64_t DeviceStream::id() const noexcept { return state_->id(); }
int DeviceStream::device_index() const noexcept { return state_->device().index(); }
int DeviceStream::priority() const noexcept { return state_->priority(); }
std::uint64_t DeviceStream::position() const noexcept { return state_->position(); }

bool DeviceStream::query() const {
  bool complete = false;
  throw_if_failed(state_->query(complete));
  return complete;
}

void DeviceStream::synchronize() const {
  throw_if_failed(state_->wait_idle());
  throw_if_failed(state_->take_failure());
}

void DeviceStream::wait_until_idle() const { throw_if_failed(state_->wait_idle()); }
bool DeviceStream::has_failure() const noexcept { return state_->oldest_failure() != 0; }

void DeviceStream::record_event(DeviceEvent& event) const { throw_if_failed(event.state_->record(*state_)); }

void DeviceStream::enqueue_wait_for(const DeviceEvent& event) const {
  throw_if_failed(event.state_->make_wait(*state_));
}

void DeviceStream::enqueue_wait_for(DeviceStream other) const {
  throw_if_failed(other.state_->device().order_after(*state_, *other.state_));
}

void DeviceStream::enqueue_host_task(const HostTask& task, std::span<const Access> accesses) const {
  throw_if_failed(state_->enqueue(
      [&](driver::Queue& queue, std::uint64_t number) noexcept { return queue.host_task(task, accesses, number); }));
}

Status detail::run_guarded(void (*call)(void*), void* state) noexcept {
  try {
    call(state);
    return {};
  } catch (const std::exception& error) {
    return {StatusCode::task_failed, std::string("host function: ") + error.what(), std::current_exception()};
  } catch (...) {
    return {StatusCode::task_failed, "host function: an exception of unknown type", std::current_exception()};
  }
}

namespace {
struct HostFunction {
  void (*function)(void*);
  void* user_data;
};
}  // namespace

void DeviceStream::enqueue_host_func(void (*func)(void*), void* user_data) const {
  if (func == nullptr) throw_status({StatusCode::invalid_argument, "enqueue_host_func: the function is null"});
  auto state = std::make_unique<HostFunction>(HostFunction{func, user_data});
  HostTask task;
  task.run = [](void* raw) noexcept -> Status {
    const std::unique_ptr<HostFunction> call(static_cast<HostFunction*>(raw));
    return detail::run_guarded(call->function, call->user_data);
  };
  task.drop = [](void* raw) noexcept { delete static_cast<HostFunction*>(raw); };
  task.state = state.get();
  task.name = "host function";
  enqueue_host_task(task);
  static_cast<void>(state.release());  // the task owns it now
}

void DeviceStream::wait_for_host_value(const CompletionFlag& flag, std::uint64_t value) const {
  if (flag.state_->device != &state_->device()) {
    throw_status({StatusCode::invalid_argument, "the completion flag belongs to another device than the stream"});
  }
  throw_if_failed(state_->enqueue([&](driver::Queue& queue, std::uint64_t number) noexcept {
    return queue.wait_value(flag.state_->address, value, number);
  }));
}

void DeviceStream::enqueue_delay(std::uint64_t nanoseconds) const {
  throw_if_failed(state_->enqueue(
      [&](driver::Queue& queue, std::uint64_t number) noexcept { return queue.delay(nanoseconds, number); }));
}

void DeviceStream::copy_device_to_device(DevicePtr dst, DevicePtr src, std::uint64_t bytes, int src_device) const {
  driver::Copy copy;
  copy.kind = driver::CopyKind::device_to_device;
  copy.dst = dst;
  copy.src = src;
  copy.bytes = bytes;
  if (src_device >= 0 && src_device != device_index()) {
    copy.dst_device = device_index();
    copy.src_device = src_device;
  }
  throw_if_failed(
      state_->enqueue([&](driver::Queue& queue, std::uint64_t number) noexcept { return queue.copy(copy, number); }));
}

void DeviceStream::upload(DevicePtr dst, const void* src, std::uint64_t bytes, bool non_blocking) const {
  throw_if_failed(runtime::upload(*state_, dst, src, bytes, non_blocking));
}

void DeviceStream::download(void* dst, DevicePtr src, std::uint64_t bytes, bool non_blocking) const {
  throw_if_failed(runtime::download(*state_, dst, src, bytes, non_blocking));
}

void DeviceStream::fill(DevicePtr dst, std::uint64_t bytes, std::uint64_t pattern, unsigned width) const {
  if ((width != 1 && width != 2 && width != 4 && width != 8) || bytes % width != 0) {
    throw_status(
        {StatusCode::invalid_argument, "fill: the pattern must be 1, 2, 4 or 8 bytes wide and divide the size"});
  }
  driver::Fill fill;
  fill.dst = dst;
  fill.bytes = bytes;
  fill.pattern = pattern;
  fill.width = static_cast<std::uint8_t>(width);
  throw_if_failed(
      state_->enqueue([&](driver::Queue& queue, std::uint64_t number) noexcept { return queue.fill(fill, number); }));
}

void* DeviceStream::native_handle() const {
  void* handle = nullptr;
  throw_if_failed(state_->native_handle(handle));
  return handle;
}

}  // namespace mojo
