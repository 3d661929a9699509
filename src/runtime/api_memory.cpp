#include "mojo/device_context.h"

#include "base/report.h"
#include "mojo/error.h"
#include "mojo/process.h"
#include "runtime/device_state.h"
#include "runtime/public_statistics.h"
#include "runtime/registry.h"

namespace mojo {
namespace {

using runtime::to_public;

memory::Block* block_of(void* handle) noexcept { return static_cast<memory::Block*>(handle); }

BlockState state_of(memory::BlockState state) noexcept {
  switch (state) {
    case memory::BlockState::allocated: return BlockState::allocated;
    case memory::BlockState::active_pending_free: return BlockState::pending_free;
    case memory::BlockState::inactive: break;
  }
  return BlockState::inactive;
}

std::uint64_t stream_id(memory::StreamUid uid) noexcept {
  const auto* stream = runtime::Registry::instance().streams().at(uid);
  return stream == nullptr ? 0 : stream->id();
}

}  // namespace

Allocation DeviceContext::allocate_bytes(std::uint64_t bytes, DeviceStream stream) const {
  throw_if_failed(runtime::usable());
  if (&stream.state()->device() != state_) {
    throw_status({StatusCode::invalid_argument, "memory of device " + std::to_string(index()) +
                                                    " cannot be allocated for a stream of device " +
                                                    std::to_string(stream.device_index())});
  }
  memory::Allocation made;
  throw_if_failed(state_->allocator().allocate(bytes, stream.state()->uid(), made));
  return {made.ptr, made.block, bytes};
}

void DeviceContext::free(void* handle) noexcept {
  // In a forked child the allocator's lock may be held for ever; at exit the memory goes with the process.
  if (handle == nullptr || in_bad_fork() || shutting_down()) return;
  const Status status = memory::CachingAllocator::owner_of(block_of(handle)).free(block_of(handle));
  if (!status.ok()) base::report("freeing device memory", status);
}

void DeviceContext::record_stream(void* handle, DeviceStream stream) {
  throw_if_failed(runtime::usable());
  if (handle == nullptr) return;
  auto& owner = memory::CachingAllocator::owner_of(block_of(handle));
  throw_if_failed(owner.record_stream(block_of(handle), stream.state()->uid()));
}

void* DeviceContext::find_allocation(DevicePtr ptr) const noexcept {
  if (in_bad_fork()) return nullptr;
  return state_->allocator().find(ptr).block;
}

DevicePtr DeviceContext::allocation_ptr(void* handle) noexcept {
  return handle == nullptr ? DevicePtr{} : memory::CachingAllocator::address_of(block_of(handle));
}

std::uint64_t DeviceContext::allocation_bytes(void* handle) noexcept {
  return handle == nullptr ? 0 : memory::CachingAllocator::allocation_of(*block_of(handle)).bytes;
}

int DeviceContext::allocation_device(void* handle) noexcept {
  if (handle == nullptr) return -1;
  const memory::CachingAllocator* owner = &memory::CachingAllocator::owner_of(block_of(handle));
  for (int i = 0; i < runtime::Registry::max_devices; ++i) {
    detail::DeviceState* device = runtime::Registry::instance().opened(i);
    if (device != nullptr && &device->allocator() == owner) return i;
  }
  return -1;
}

// In a process forked too late another thread may hold the allocator's lock for ever: there is nothing to tell.
MemoryStatistics DeviceContext::memory_statistics() const {
  if (in_bad_fork()) return {};
  const memory::DeviceStatistics s = state_->allocator().statistics();
  MemoryStatistics out;
  out.allocation = to_public(s.allocation);
  out.segment = to_public(s.segment);
  out.active = to_public(s.active);
  out.inactive_split = to_public(s.inactive_split);
  out.allocated_bytes = to_public(s.allocated_bytes);
  out.reserved_bytes = to_public(s.reserved_bytes);
  out.active_bytes = to_public(s.active_bytes);
  out.inactive_split_bytes = to_public(s.inactive_split_bytes);
  out.requested_bytes = to_public(s.requested_bytes);
  out.oversize_allocations = to_public(s.oversize_allocations);
  out.oversize_segments = to_public(s.oversize_segments);
  out.num_alloc_retries = s.num_alloc_retries;
  out.num_ooms = s.num_ooms;
  out.num_sync_all_streams = s.num_sync_all_streams;
  out.num_device_alloc = s.num_device_alloc;
  out.num_device_free = s.num_device_free;
  out.max_split_size = s.max_split_size;
  return out;
}

void DeviceContext::reset_peak_statistics() const {
  if (!in_bad_fork()) state_->allocator().reset_peak_statistics();
}
void DeviceContext::reset_accumulated_statistics() const {
  if (!in_bad_fork()) state_->allocator().reset_accumulated_statistics();
}

std::vector<SegmentSnapshot> DeviceContext::memory_snapshot() const {
  if (in_bad_fork()) return {};
  std::vector<SegmentSnapshot> out;
  for (const memory::SegmentSnapshot& segment : state_->allocator().snapshot()) {
    SegmentSnapshot& made = out.emplace_back();
    made.address = segment.address.address;
    made.bytes = segment.total_size;
    made.stream_id = stream_id(segment.stream);
    made.large = segment.is_large;
    for (const memory::BlockSnapshot& block : segment.blocks) {
      made.blocks.push_back({block.address.address, block.size, block.requested, state_of(block.state)});
    }
  }
  return out;
}

void DeviceContext::empty_cache() const {
  throw_if_failed(runtime::usable());
  throw_if_failed(state_->allocator().empty_cache());
}

void DeviceContext::set_memory_limit(std::uint64_t bytes) const {
  throw_if_failed(runtime::usable());
  state_->allocator().set_limit(bytes);
}
std::uint64_t DeviceContext::memory_limit() const noexcept { return in_bad_fork() ? 0 : state_->allocator().limit(); }

}  // namespace mojo
