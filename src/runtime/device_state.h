// What it is: DeviceState, the process's one context of a device: the driver's device, its streams, its memory.
// Ordering: none of its own. Threads: any; locks are leaves, none is held while the host blocks.
// Errors: Status. Lives until the process ends.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/append_table.h"
#include "base/env.h"
#include "driver/driver.h"
#include "memory/caching_allocator.h"
#include "mojo/device_context.h"
#include "runtime/event_state.h"
#include "runtime/memory_sources.h"
#include "runtime/stream_state.h"

namespace mojo::detail {

class DeviceState {
 public:
  DeviceState(int index, std::string driver_name, std::unique_ptr<driver::Device> device,
              const base::Settings& settings, const AllocationPolicy& policy);

  int index() const noexcept { return index_; }
  const std::string& driver_name() const noexcept { return driver_name_; }
  driver::Device& driver() noexcept { return *device_; }
  driver::Capabilities capabilities() const noexcept { return capabilities_; }
  bool host_accessible() const noexcept { return capabilities_.has(driver::Capability::host_accessible_memory); }
  // Whether each buffer that is used is looked up first: one used after it was freed is found (TORCH_MOJO_BACKEND_CHECK=driver).
  bool checks_buffers() const noexcept { return checks_buffers_; }
  std::uint64_t staging_bytes() const noexcept { return staging_bytes_; }
  memory::CachingAllocator& allocator() noexcept { return allocator_; }

  StreamState& default_stream() noexcept { return *default_stream_; }
  Status create_stream(int priority, StreamState*& out) noexcept;
  StreamState* stream(std::uint64_t id) const noexcept { return streams_.at(id); }
  std::uint64_t stream_count() const noexcept { return streams_.size(); }

  // An event from the pool, or a new one. `recycle` takes it back; the pending waits on it stay valid.
  Status create_event(EventOptions options, std::unique_ptr<EventState>& out) noexcept;
  void recycle(std::unique_ptr<EventState> event) noexcept;

  // `later` runs after all that is queued on `earlier` (of this device) so far.
  Status order_after(StreamState& later, StreamState& earlier) noexcept;

  // Blocks the host until all queued so far is complete; then the oldest failure of any stream, the others kept.
  Status synchronize() noexcept;

  // The list of streams with work that no synchronize has waited for; called under the stream's mutex.
  void add_dirty(StreamState& stream) noexcept;
  void remove_dirty(StreamState& stream) noexcept;

 private:
  StreamState* add_stream(int priority, bool is_default);

  const int index_;
  const std::string driver_name_;
  const std::unique_ptr<driver::Device> device_;
  const driver::Capabilities capabilities_;
  const std::uint64_t staging_bytes_;
  const bool checks_buffers_;
  runtime::DeviceSegmentSource segments_;
  runtime::ClockFenceSource fences_;
  memory::CachingAllocator allocator_;

  std::mutex streams_mutex_;
  base::AppendTable<StreamState> streams_;
  StreamState* default_stream_ = nullptr;

  std::mutex dirty_mutex_;
  std::vector<StreamState*> dirty_;      // may have work that no host wait has covered yet
  std::vector<StreamState*> unsettled_;  // clean, but with a failure nobody has been told of

  std::mutex events_mutex_;
  std::vector<std::unique_ptr<EventState>> spare_events_;
};

}  // namespace mojo::detail
