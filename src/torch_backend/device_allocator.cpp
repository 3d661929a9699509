#include "torch_backend/device_allocator.h"

#include <c10/util/Exception.h>

#include "mojo/device_context.h"
#include "mojo/error.h"
#include "mojo/process.h"
#include "torch_backend/current.h"
#include "torch_backend/errors.h"
#include "torch_backend/statistics.h"

namespace mojo::torch_backend {

namespace {

c10::Device device_of(c10::DeviceIndex index) { return c10::Device(device_type, index); }

// The profiler reads figures and may run Python: no lock of ours is held here.
void report_usage(void* ptr, std::int64_t bytes, const DeviceContext& context) noexcept {
  try {
    const MemoryStatistics statistics = context.memory_statistics();
    c10::reportMemoryUsageToProfiler(ptr, bytes, static_cast<std::size_t>(statistics.allocated_bytes[0].current),
                                     static_cast<std::size_t>(statistics.reserved_bytes[0].current),
                                     device_of(static_cast<c10::DeviceIndex>(context.index())));
  } catch (...) {
    TORCH_WARN_ONCE("mojo backend: memory usage could not be reported to the profiler");
  }
}

void report_out_of_memory(std::size_t bytes, const DeviceContext& context) {
  const MemoryStatistics statistics = context.memory_statistics();
  c10::reportOutOfMemoryToProfiler(static_cast<std::int64_t>(bytes),
                                   static_cast<std::size_t>(statistics.allocated_bytes[0].current),
                                   static_cast<std::size_t>(statistics.reserved_bytes[0].current),
                                   device_of(static_cast<c10::DeviceIndex>(context.index())));
}

// The deleter of our DataPtr, by which they are known as ours.
void free_allocation(void* handle) {
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    const int index = DeviceContext::allocation_device(handle);
    void* const ptr = DeviceContext::allocation_ptr(handle).opaque();
    const std::int64_t bytes = static_cast<std::int64_t>(DeviceContext::allocation_bytes(handle));
    DeviceContext::free(handle);
    if (index >= 0 && DeviceContext::is_open(index) && !shutting_down() && !in_bad_fork()) {
      report_usage(ptr, -bytes, context(static_cast<c10::DeviceIndex>(index)));
    }
    return;
  }
  DeviceContext::free(handle);
}

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override { return torch_backend::allocate(bytes, current_device()); }
  // No data pointer is "simple": core's copy-on-write takes a simple one's context for the data itself.
  void copy_data(void* dest, const void* src, std::size_t count) const override;

  // Whether there are figures to ask for: in a process forked too late there are none.
  bool initialized() override {
    if (in_bad_fork()) return false;
    const c10::DeviceIndex count = device_count_or_zero();
    for (int i = 0; i < count; ++i) {
      if (DeviceContext::is_open(i)) return true;
    }
    return false;
  }
  void emptyCache(c10::MempoolId_t) override {
    const c10::DeviceIndex count = device_count_or_zero();
    for (c10::DeviceIndex i = 0; i < count; ++i) {
      if (DeviceContext::is_open(i)) translated([&] { context(i).empty_cache(); });
    }
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    if (data.get() != nullptr) record_stream(data, from_c10(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const c10::DeviceIndex index = checked_device(device);
    if (!DeviceContext::is_open(index)) return torch_backend::to_c10(MemoryStatistics{});
    return translated([&] { return torch_backend::to_c10(context(index).memory_statistics()); });
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    const c10::DeviceIndex index = checked_device(device);
    if (DeviceContext::is_open(index)) translated([&] { context(index).reset_accumulated_statistics(); });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    const c10::DeviceIndex index = checked_device(device);
    if (DeviceContext::is_open(index)) translated([&] { context(index).reset_peak_statistics(); });
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const MemoryInfo info = translated([&] { return context(checked_device(device)).memory_info(); });
    return {info.free, info.total};
  }
};

void DeviceAllocator::copy_data(void* dest, const void* src, std::size_t count) const {
  if (count == 0) return;
  const c10::DeviceIndex dest_device = find_device(dest);
  const c10::DeviceIndex src_device = find_device(src);
  TORCH_CHECK(dest_device >= 0 && src_device >= 0, "mojo backend: copy_data: not memory of a mojo device");
  translated([&] {
    current_stream(dest_device)
        .copy_device_to_device(DevicePtr::from_opaque(dest), DevicePtr::from_opaque(src), count,
                               src_device == dest_device ? -1 : src_device);
  });
}

}  // namespace

c10::DataPtr allocate(std::size_t bytes, c10::DeviceIndex index) {
  if (index < 0 || bytes == 0) index = checked_device(index);
  if (bytes == 0) return c10::DataPtr(nullptr, device_of(index));
  const DeviceStream stream = current_stream(index);
  const DeviceContext device = context(index);
  Allocation allocation;
  try {
    allocation = device.allocate_bytes(bytes, stream);
  } catch (const OutOfMemory& error) {
    if (c10::memoryProfilingEnabled()) report_out_of_memory(bytes, device);
    throw_translated(error);
  } catch (const Error& error) {
    throw_translated(error);
  }
  c10::DataPtr data(allocation.ptr.opaque(), allocation.handle, &free_allocation, device_of(index));
  if (C10_UNLIKELY(c10::memoryProfilingEnabled())) {
    report_usage(data.get(), static_cast<std::int64_t>(DeviceContext::allocation_bytes(allocation.handle)), device);
  }
  return data;
}

void record_stream(const c10::DataPtr& data, DeviceStream stream) {
  if (data.get() == nullptr) return;
  void* handle = nullptr;
  if (data.get_deleter() == &free_allocation) {
    handle = data.get_context();
  } else if (const c10::DeviceIndex index = find_device(data.get()); index >= 0) {
    handle = context(index).find_allocation(DevicePtr::from_opaque(data.get()));
  }
  if (handle != nullptr) translated([&] { DeviceContext::record_stream(handle, stream); });
}

c10::DeviceIndex find_device(const void* ptr) noexcept {
  const c10::DeviceIndex count = device_count_or_zero();
  for (c10::DeviceIndex i = 0; i < count; ++i) {
    if (DeviceContext::is_open(i) && context(i).find_allocation(DevicePtr::from_opaque(ptr)) != nullptr) return i;
  }
  return -1;
}

c10::DeviceAllocator* device_allocator() noexcept {
  static auto* const allocator = new DeviceAllocator;  // leaked: storages keep the pointer until the process ends
  return allocator;
}

c10::CachingDeviceAllocator::DeviceStats to_c10(const MemoryStatistics& statistics) {
  c10::CachingDeviceAllocator::DeviceStats stats;
  stats.allocation = to_c10(statistics.allocation);
  stats.segment = to_c10(statistics.segment);
  stats.active = to_c10(statistics.active);
  stats.inactive_split = to_c10(statistics.inactive_split);
  stats.allocated_bytes = to_c10(statistics.allocated_bytes);
  stats.reserved_bytes = to_c10(statistics.reserved_bytes);
  stats.active_bytes = to_c10(statistics.active_bytes);
  stats.inactive_split_bytes = to_c10(statistics.inactive_split_bytes);
  stats.requested_bytes = to_c10(statistics.requested_bytes);
  stats.num_alloc_retries = statistics.num_alloc_retries;
  stats.num_ooms = statistics.num_ooms;
  stats.oversize_allocations = to_c10(statistics.oversize_allocations);
  stats.oversize_segments = to_c10(statistics.oversize_segments);
  stats.num_sync_all_streams = statistics.num_sync_all_streams;
  stats.num_device_alloc = statistics.num_device_alloc;
  stats.num_device_free = statistics.num_device_free;
  stats.max_split_size = statistics.max_split_size;
  return stats;
}

}  // namespace mojo::torch_backend
