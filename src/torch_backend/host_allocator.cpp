#include "torch_backend/host_allocator.h"

#include "mojo/pinned.h"
#include "torch_backend/current.h"
#include "torch_backend/errors.h"
#include "torch_backend/statistics.h"

namespace mojo::torch_backend {

namespace {

void free_pinned(void* handle) { pinned_free(handle); }

class HostAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return c10::DataPtr(nullptr, cpu);
    const PinnedAllocation allocation = translated([&] { return pinned_allocate(context(current_device()), bytes); });
    return c10::DataPtr(allocation.ptr, allocation.handle, &free_pinned, cpu);
  }
  void copy_data(void* dest, const void* src, std::size_t count) const override { default_copy_data(dest, src, count); }

  // The block is known by address alone, so that a view's pointer does; `context` is not needed.
  bool record_event(void* ptr, void* /*context*/, c10::Stream stream) override {
    if (stream.device_type() != device_type) return false;
    return translated([&] { return pinned_record_use(ptr, from_c10(stream)); });
  }
  void empty_cache() override {
    translated([] { pinned_empty_cache(); });
  }
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override { pinned_reset_accumulated_statistics(); }
  void reset_peak_stats() override { pinned_reset_peak_statistics(); }
};

at::HostStats HostAllocator::get_stats() {
  const PinnedStatistics statistics = translated([] { return pinned_statistics(); });
  at::HostStats stats;
  stats.active_requests = to_c10(statistics.active_requests);
  stats.active_bytes = to_c10(statistics.active_bytes);
  stats.allocations = to_c10(statistics.allocations);
  stats.allocated_bytes = to_c10(statistics.allocated_bytes);
  stats.host_alloc_time = to_c10(statistics.host_alloc_time);
  stats.host_free_time = to_c10(statistics.host_free_time);
  stats.num_host_alloc = statistics.num_host_alloc;
  stats.num_host_free = statistics.num_host_free;
  return stats;
}

}  // namespace

at::HostAllocator* host_allocator() noexcept {
  static auto* const allocator = new HostAllocator;  // leaked: storages keep the pointer until the process ends
  return allocator;
}

}  // namespace mojo::torch_backend
