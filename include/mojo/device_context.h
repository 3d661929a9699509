// What it is: DeviceContext, a cheap reference to the process's one context of a device: its streams, its memory.
// Ordering: see device_stream.h. allocate_bytes gives memory that is valid in the order of the given stream; free
//   makes it reusable by later work of that stream at once, by others only when every recorded use is done or
//   already ordered before them.
// Threads: any. Errors: throws mojo::Error, mojo::OutOfMemory, mojo::DeviceLost.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mojo/device_event.h"
#include "mojo/device_function.h"
#include "mojo/device_ptr.h"
#include "mojo/device_stream.h"
#include "mojo/element_count.h"
#include "mojo/export.h"
#include "mojo/memory_statistics.h"

namespace mojo {

namespace detail {
class DeviceState;
}

template <class T>
class DeviceBuffer;
template <class T>
class PinnedBuffer;

struct DeviceProperties {
  std::string name;
  std::string driver;              // "host", "cuda", ...
  std::uint64_t total_memory = 0;  // bytes
  int multiprocessor_count = 0;
  int major = 0, minor = 0;
  int max_threads_per_block = 0;
  std::uint64_t max_shared_memory_per_block = 0;  // bytes
  int warp_size = 1;
};

struct MemoryInfo {
  std::uint64_t free = 0, total = 0;  // bytes; what the caching allocator holds counts as used
};

struct PriorityRange {
  int least = 0, greatest = 0;  // greatest <= priority <= least
};

// What a device can do, asked before use. See driver::Capability for the meanings.
enum class Feature : std::uint8_t {
  events,
  multiple_queues,
  host_functions,
  wait_values,
  peer_copies,
  host_accessible_memory,
  portable_pinned_memory,
  async_host_copies,
  launch,
  compile,
};

// Memory from the caching allocator. `handle` frees it and names it in O(1); `bytes` is what was asked for.
struct Allocation {
  DevicePtr ptr;
  void* handle = nullptr;
  std::uint64_t bytes = 0;
};

class MOJO_API DeviceContext {
 public:
  // The device `index` of the driver that this process uses; out_of_range names the valid range. Opens the device.
  explicit DeviceContext(int index = 0);
  // The same, and failed_precondition if the process uses another driver than `driver`.
  DeviceContext(std::string_view driver, int index);

  // How many devices the process's driver has. Opens none: no thread, no context, safe before a fork.
  static int count();
  // The driver that this process uses ("host"); chosen at the first question and never changed.
  static std::string driver_name();
  // Whether device `index` has been opened in this process.
  static bool is_open(int index) noexcept;

  int index() const noexcept;
  std::string name() const;
  DeviceProperties properties() const;
  bool has(Feature feature) const noexcept;
  PriorityRange priority_range() const noexcept;
  MemoryInfo memory_info() const;
  // Driver-specific switch, `schedule` on the host device ("fifo", "random:SEED"); the device must be idle.
  void set_option(std::string_view name, std::string_view value) const;

  DeviceStream stream() const noexcept;                          // the default stream, id 0
  DeviceStream create_stream(StreamOptions options = {}) const;  // with one queue: the default stream
  // The stream of that id; out_of_range if the device has none (S-12).
  DeviceStream stream(std::uint64_t id) const;
  DeviceEvent create_event(EventOptions options = {}) const;
  // Blocks the host until all work queued so far on every stream of the device is complete, then raises the oldest
  // failure of any stream and keeps the rest.
  void synchronize() const;

  // Compiles `source` at run time for this device, or takes the result from the cache, and loads its function `name`
  // (docs/kernels.md has the dialect of C++ that it is written in). Blocks the host while the compiler runs; enqueues nothing.
  // `options` go to the compiler after the driver's own. Throws invalid_argument with the compiler's own text if the source
  // does not compile, naming the function if it is not in it, or naming the first parameter that is another in `Signature`
  // than in the source; unavailable where there is no compiler, or it fails for another reason than the source.
  template <class Signature>
  DeviceFunction<Signature> compile_function(std::string_view source, std::string_view name,
                                             std::span<const std::string> options = {}) const {
    return DeviceFunction<Signature>(
        compile_described_function(source, name, options, DeviceFunction<Signature>::parameters));
  }
  // The same for DeviceStream::enqueue.
  UntypedFunction compile_untyped_function(std::string_view source, std::string_view name,
                                           std::span<const std::string> options = {}) const;

  // `count` elements of device memory for use on `stream` (mojo/device_buffer.h); 0 gives an empty buffer.
  // invalid_argument for a negative count, out_of_range for one beyond all memory, else as allocate_bytes.
  template <class T>
  DeviceBuffer<T> allocate(ElementCount count, DeviceStream stream) const;
  // `count` elements of pinned host memory (mojo/pinned_buffer.h), by way of this device.
  template <class T>
  PinnedBuffer<T> allocate_pinned(ElementCount count) const;

  // Memory of `bytes` bytes (0 gives a null allocation) for use on `stream`. Blocks the host only before it reports
  // out of memory.
  Allocation allocate_bytes(std::uint64_t bytes, DeviceStream stream) const;
  // Never blocks, never throws, touches no other stream. Safe in a forked child and after shutdown.
  static void free(void* handle) noexcept;
  // Keeps the memory, once freed, from being reused until the work queued on `stream` at the free is done.
  static void record_stream(void* handle, DeviceStream stream);
  // The allocation that contains `ptr`, or nullptr.
  void* find_allocation(DevicePtr ptr) const noexcept;
  // Start of the allocation of `handle`.
  static DevicePtr allocation_ptr(void* handle) noexcept;
  // Its size as the allocator counts it (allocated_bytes), and the index of its device.
  static std::uint64_t allocation_bytes(void* handle) noexcept;
  static int allocation_device(void* handle) noexcept;

  MemoryStatistics memory_statistics() const;
  void reset_peak_statistics() const;
  void reset_accumulated_statistics() const;
  std::vector<SegmentSnapshot> memory_snapshot() const;
  // Returns cached memory to the driver. Safe while streams are busy: memory in use stays.
  void empty_cache() const;
  // The most that the allocator may reserve, bytes; 0 lifts the limit.
  void set_memory_limit(std::uint64_t bytes) const;
  std::uint64_t memory_limit() const noexcept;

  detail::DeviceState* state() const noexcept { return state_; }
  friend bool operator==(DeviceContext, DeviceContext) noexcept = default;

 private:
  UntypedFunction compile_described_function(std::string_view source, std::string_view name,
                                             std::span<const std::string> options,
                                             std::span<const ParameterDescription> parameters) const;
  explicit DeviceContext(detail::DeviceState* state) noexcept : state_(state) {}
  detail::DeviceState* state_;
};

}  // namespace mojo
