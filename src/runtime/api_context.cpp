#include "mojo/device_context.h"

#include "mojo/error.h"
#include "runtime/device_state.h"
#include "runtime/registry.h"

namespace mojo {
namespace {

detail::DeviceState* open_device(int index) {
  detail::DeviceState* state = nullptr;
  throw_if_failed(runtime::Registry::instance().device(index, state));
  return state;
}

}  // namespace

DeviceContext::DeviceContext(int index) : state_(open_device(index)) {}

DeviceContext::DeviceContext(std::string_view driver, int index) : state_(nullptr) {
  const std::string name = driver_name();
  if (name != driver) {
    throw_status({StatusCode::failed_precondition,
                  "this process uses driver '" + name + "', not '" + std::string(driver) + "'; it is chosen once"});
  }
  state_ = open_device(index);
}

int DeviceContext::count() {
  int count = 0;
  throw_if_failed(runtime::Registry::instance().device_count(count));
  return count;
}

std::string DeviceContext::driver_name() {
  std::string name;
  throw_if_failed(runtime::Registry::instance().driver_name(name));
  return name;
}

bool DeviceContext::is_open(int index) noexcept { return runtime::Registry::instance().opened(index) != nullptr; }

int DeviceContext::index() const noexcept { return state_->index(); }
std::string DeviceContext::name() const { return properties().name; }

DeviceProperties DeviceContext::properties() const {
  driver::DeviceProperties p;
  throw_if_failed(runtime::usable());
  throw_if_failed(state_->driver().properties(p));
  DeviceProperties out;
  out.name = std::move(p.name);
  out.driver = state_->driver_name();
  out.total_memory = p.total_memory;
  out.multiprocessor_count = p.multiprocessor_count;
  out.major = p.major;
  out.minor = p.minor;
  out.max_threads_per_block = p.max_threads_per_block;
  out.max_shared_memory_per_block = p.max_shared_memory_per_block;
  out.warp_size = p.warp_size;
  return out;
}

bool DeviceContext::has(Feature feature) const noexcept {
  using driver::Capability;
  const auto capability = [&] {
    switch (feature) {
      case Feature::events: return Capability::events;
      case Feature::multiple_queues: return Capability::multiple_queues;
      case Feature::host_functions: return Capability::host_functions;
      case Feature::wait_values: return Capability::wait_values;
      case Feature::peer_copies: return Capability::peer_copies;
      case Feature::host_accessible_memory: return Capability::host_accessible_memory;
      case Feature::portable_pinned_memory: return Capability::portable_pinned_memory;
      case Feature::async_host_copies: return Capability::async_host_copies;
      case Feature::compile: return Capability::compile;
      case Feature::launch: break;
    }
    return Capability::launch;
  }();
  return state_->capabilities().has(capability);
}

PriorityRange DeviceContext::priority_range() const noexcept {
  const auto range = state_->driver().priority_range();
  return {range.least, range.greatest};
}

MemoryInfo DeviceContext::memory_info() const {
  throw_if_failed(runtime::usable());
  driver::MemoryInfo info;
  throw_if_failed(state_->driver().memory_info(info));
  return {info.free, info.total};
}

void DeviceContext::set_option(std::string_view name, std::string_view value) const {
  throw_if_failed(runtime::usable());
  throw_if_failed(state_->driver().set_option(name, value));
}

DeviceStream DeviceContext::stream() const noexcept { return DeviceStream::from_state(&state_->default_stream()); }

DeviceStream DeviceContext::create_stream(StreamOptions options) const {
  detail::StreamState* stream = nullptr;
  throw_if_failed(state_->create_stream(options.priority, stream));
  return DeviceStream::from_state(stream);
}

DeviceStream DeviceContext::stream(std::uint64_t id) const {
  detail::StreamState* stream = state_->stream(id);
  if (stream == nullptr) {
    throw_status({StatusCode::out_of_range, "device " + std::to_string(index()) + " has no stream with id " +
                                                std::to_string(static_cast<std::int64_t>(id)) +
                                                "; its streams have ids 0 to " +
                                                std::to_string(state_->stream_count() - 1)});
  }
  return DeviceStream::from_state(stream);
}

DeviceEvent DeviceContext::create_event(EventOptions options) const {
  std::unique_ptr<detail::EventState> event;
  throw_if_failed(state_->create_event(options, event));
  return DeviceEvent::adopt(event.release());
}

void DeviceContext::synchronize() const { throw_if_failed(state_->synchronize()); }

}  // namespace mojo
