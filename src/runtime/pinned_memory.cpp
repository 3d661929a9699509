#include "runtime/pinned_memory.h"

#include <atomic>

#include "mojo/error.h"
#include "mojo/pinned.h"
#include "runtime/device_state.h"
#include "runtime/public_statistics.h"

namespace mojo {
namespace runtime {
namespace {
std::atomic<PinnedMemory*> used{nullptr};
// Which device an allocation in progress on this thread asks. The allocator's interface knows no device: its blocks
// are portable between them.
thread_local detail::DeviceState* asking = nullptr;
}  // namespace

Status DevicePinnedSource::allocate(std::uint64_t bytes, void*& out) noexcept {
  detail::DeviceState* device = asking;
  MOJO_RETURN_IF_ERROR(device->driver().allocate_pinned(bytes, out));
  const std::lock_guard lock(mutex_);
  owners_.emplace(out, device);
  return {};
}

Status DevicePinnedSource::free(void* ptr, std::uint64_t) noexcept {
  detail::DeviceState* device = nullptr;
  {
    const std::lock_guard lock(mutex_);
    const auto owner = owners_.find(ptr);
    if (owner == owners_.end()) return {StatusCode::internal, "pinned memory of no device was to be freed"};
    device = owner->second;
    owners_.erase(owner);
  }
  return device->driver().free_pinned(ptr);
}

PinnedMemory& PinnedMemory::instance() noexcept {
  static auto* memory = [] {
    auto* made = new PinnedMemory;
    used.store(made, std::memory_order_release);
    return made;
  }();
  return *memory;
}

PinnedMemory* PinnedMemory::if_used() noexcept { return used.load(std::memory_order_acquire); }

Status PinnedMemory::allocate(detail::DeviceState& device, std::uint64_t bytes,
                              memory::PinnedAllocation& out) noexcept {
  asking = &device;
  Status status = allocator_.allocate(bytes, out);
  asking = nullptr;
  return status;
}

}  // namespace runtime

PinnedAllocation pinned_allocate(const DeviceContext& context, std::uint64_t bytes) {
  throw_if_failed(runtime::usable());
  memory::PinnedAllocation made;
  throw_if_failed(runtime::PinnedMemory::instance().allocate(*context.state(), bytes, made));
  return {made.ptr, made.block, bytes};
}

void pinned_free(void* handle) noexcept {
  // In a forked child the allocator's lock may be held for ever, and at exit queued copies may still name the block.
  if (handle == nullptr || in_bad_fork() || shutting_down()) return;
  static_cast<void>(runtime::PinnedMemory::instance().allocator().free(static_cast<memory::PinnedBlock*>(handle)));
}

bool pinned_contains(const void* ptr) noexcept {
  auto* memory = runtime::PinnedMemory::if_used();
  return ptr != nullptr && memory != nullptr && !in_bad_fork() && memory->allocator().find(ptr).block != nullptr;
}

bool pinned_record_use(const void* ptr, DeviceStream stream) {
  auto* memory = runtime::PinnedMemory::if_used();
  if (memory == nullptr || in_bad_fork()) return false;
  return memory->allocator().record_use(ptr, {stream.state()->uid(), stream.position()}).ok();
}

void pinned_empty_cache() {
  auto* memory = runtime::PinnedMemory::if_used();
  if (memory == nullptr) return;
  throw_if_failed(runtime::usable());
  throw_if_failed(memory->allocator().empty_cache());
}

PinnedStatistics pinned_statistics() {
  auto* memory = runtime::PinnedMemory::if_used();
  if (memory == nullptr || in_bad_fork()) return {};
  const memory::PinnedStatistics s = memory->allocator().statistics();
  using runtime::to_public;
  PinnedStatistics out;
  out.active_requests = to_public(s.active_requests);
  out.active_bytes = to_public(s.active_bytes);
  out.allocations = to_public(s.allocations);
  out.allocated_bytes = to_public(s.allocated_bytes);
  out.host_alloc_time = to_public(s.host_alloc_time);
  out.host_free_time = to_public(s.host_free_time);
  out.num_host_alloc = s.num_host_alloc;
  out.num_host_free = s.num_host_free;
  return out;
}

void pinned_reset_peak_statistics() {
  if (auto* memory = runtime::PinnedMemory::if_used()) memory->allocator().reset_peak_statistics();
}

void pinned_reset_accumulated_statistics() {
  if (auto* memory = runtime::PinnedMemory::if_used()) memory->allocator().reset_accumulated_statistics();
}

}  // namespace mojo
