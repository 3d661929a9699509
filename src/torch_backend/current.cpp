#include "torch_backend/current.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "torch_backend/errors.h"

namespace mojo::torch_backend {

namespace {

// Contexts live as long as the process; a slot is written once, then published by its flag.
struct Contexts {
  std::array<std::atomic<bool>, max_devices> known{};
  std::array<std::optional<DeviceContext>, max_devices> contexts{};
  std::mutex mutex;
};

Contexts& contexts() {
  static auto* const all = new Contexts;  // leaked: used until the last thread ends
  return *all;
}

// -1 until the driver has answered; the answer never changes.
std::atomic<int> known_count{-1};

c10::DeviceIndex ask_device_count() {
  // An index is an int8_t, and the highest one has to be below the count.
  const int count = std::min(translated([] { return DeviceContext::count(); }), static_cast<int>(max_devices) - 1);
  known_count.store(count, std::memory_order_relaxed);
  return static_cast<c10::DeviceIndex>(count);
}

[[noreturn]] void throw_unknown_stream(c10::DeviceIndex index, std::int64_t id) {
  TORCH_CHECK(false, "mojo backend: device ", static_cast<int>(index), " has no stream with id ", id,
              ": a torch.Stream made from bare numbers must name a stream that exists");
}

std::size_t slot_of(c10::DeviceIndex index) { return static_cast<std::size_t>(index); }

}  // namespace

namespace detail {

constinit thread_local ThreadState thread_state;

void throw_no_device(c10::DeviceIndex index) {
  TORCH_CHECK(false, "mojo backend: ", static_cast<int>(index),
              " is the index of no mojo device: expected a tensor or a stream of one");
}

mojo::detail::StreamState* open_default_stream(c10::DeviceIndex index) {
  auto* const state = context(index).stream().state();
  current_of(index).state = state;  // only what was really got is kept: opening may have been refused
  return state;
}

mojo::detail::StreamState* look_up_stream(c10::DeviceIndex index, std::int64_t id) {
  auto& cache = thread_state.looked_up;
  LookedUpStream& entry = cache[(static_cast<std::size_t>(id) + 5 * slot_of(index)) % cache.size()];
  if (entry.state != nullptr && entry.id == id && entry.device == index) return entry.state;
  // Without an open device there is no stream but the default one.
  if (id < 0 || (id != 0 && !DeviceContext::is_open(index))) throw_unknown_stream(index, id);
  mojo::detail::StreamState* state = nullptr;
  try {
    state = context(index).stream(static_cast<std::uint64_t>(id)).state();
  } catch (const Error& error) {
    if (error.code() == StatusCode::out_of_range) throw_unknown_stream(index, id);
    throw_translated(error);
  }
  entry = {state, id, index};
  return state;
}

}  // namespace detail

c10::DeviceIndex device_count() {
  const int count = known_count.load(std::memory_order_relaxed);
  return count >= 0 ? static_cast<c10::DeviceIndex>(count) : ask_device_count();
}

c10::DeviceIndex device_count_or_zero() noexcept {
  try {
    return device_count();
  } catch (...) {
    return 0;
  }
}

c10::DeviceIndex checked_device(c10::DeviceIndex index) {
  if (index == -1) return current_device();
  const c10::DeviceIndex count = device_count();
  if (index < 0 || index >= count) throw_device_out_of_range(index, count);
  return index;
}

void set_current_device(c10::DeviceIndex index) { detail::thread_state.device = checked_device(index); }

void set_current_device_unchecked(c10::DeviceIndex index) noexcept {
  if (index >= 0 && index < device_count_or_zero()) detail::thread_state.device = index;
}

DeviceContext context(c10::DeviceIndex index) {
  Contexts& all = contexts();
  const std::size_t slot = slot_of(index);
  if (index >= 0 && all.known[slot].load(std::memory_order_acquire)) return *all.contexts[slot];
  const DeviceContext opened = translated([&] { return DeviceContext(checked_device(index)); });
  const std::size_t opened_slot = static_cast<std::size_t>(opened.index());
  const std::lock_guard lock(all.mutex);
  if (!all.known[opened_slot].load(std::memory_order_relaxed)) {
    all.contexts[opened_slot].emplace(opened);
    all.known[opened_slot].store(true, std::memory_order_release);
  }
  return opened;
}

DeviceStream exchange_stream(c10::DeviceIndex index, DeviceStream stream) {
  const DeviceStream previous = current_stream(index);
  detail::current_of(index) = {stream.state(), static_cast<std::int64_t>(stream.id())};
  return previous;
}

std::int64_t exchange_stream_id(c10::DeviceIndex index, std::int64_t id) {
  detail::CurrentStream& current = detail::current_of(index);
  const std::int64_t previous = current.id;
  if (previous == id) return previous;
  // The default stream needs no look-up, so that a guard which puts it back opens nothing.
  current = {id == 0 ? nullptr : detail::look_up_stream(index, id), id};
  return previous;
}

DeviceStream from_c10(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == device_type, "mojo backend: expected a stream of a mojo device, got ", stream);
  const c10::DeviceIndex index = checked_device(stream.device_index());
  const detail::CurrentStream& current = detail::current_of(index);
  if (current.id == stream.id()) return current_stream(index);
  return DeviceStream::from_state(detail::look_up_stream(index, stream.id()));
}

}  // namespace mojo::torch_backend
