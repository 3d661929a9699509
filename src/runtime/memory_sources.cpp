#include "runtime/memory_sources.h"

#include "runtime/registry.h"
#include "runtime/stream_state.h"

namespace mojo::runtime {
namespace {
detail::StreamState* state_of(memory::StreamUid stream) noexcept { return Registry::instance().streams().at(stream); }
}  // namespace

void DeviceSegmentSource::memory_info(std::uint64_t& free, std::uint64_t& total) noexcept {
  driver::MemoryInfo info;
  if (!device_.memory_info(info).ok()) info = {};
  free = info.free;
  total = info.total;
}

std::uint64_t ClockFenceSource::position(memory::StreamUid stream) noexcept {
  auto* state = state_of(stream);
  return state == nullptr ? 0 : state->position_for_free();
}

std::uint64_t ClockFenceSource::completed(memory::StreamUid stream) noexcept {
  const auto* state = state_of(stream);
  return state == nullptr ? ~std::uint64_t{0} : state->completed();
}

std::uint64_t ClockFenceSource::ordered_before(memory::StreamUid stream, memory::StreamUid after) noexcept {
  auto* state = state_of(after);
  return state == nullptr ? 0 : state->ordered_before(stream);
}

std::uint64_t ClockFenceSource::poll_completed(memory::StreamUid stream) noexcept {
  auto* state = state_of(stream);
  if (state == nullptr) return ~std::uint64_t{0};
  bool complete = false;
  // A device with one queue answers a query by waiting: an allocation must not wait, so it is not asked.
  if (state->may_query_without_waiting()) static_cast<void>(state->query(complete));
  return state->completed();
}

Status ClockFenceSource::wait(memory::Position position, memory::Fence) noexcept {
  auto* state = state_of(position.stream);
  return state == nullptr ? Status{} : state->wait_idle();
}

}  // namespace mojo::runtime
