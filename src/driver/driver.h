// What it is: the contract between the runtime and the drivers: Driver -> Device -> Queue, Event, Pinned memory, Module.
//   A driver implements these interfaces in its own folder; a layer (drivers/layers) wraps any of them.
// Ordering: operations of one Queue run in the order of the calls. Nothing orders two queues but Queue::wait on a
//   record. A call that enqueues may return before the operation was handed to the hardware: `query` is false and
//   `native_handle`, `synchronize` flush first. Nothing of the caller's stack is kept after a call returns.
// Threads: every method may be called from any thread. Two threads that enqueue on one queue are ordered by
//   whoever comes first; the runtime serialises them per stream. No method blocks the host but those that say so.
// Errors: every method is noexcept and returns Status. An ability a driver lacks is a capability bit; a call
//   without the bit returns `unsupported` naming the driver and the call. Failures of queued work go to the queue's
//   FailureSink, never to a later enqueue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "driver/compiler.h"
#include "mojo/device_ptr.h"
#include "mojo/host_task.h"
#include "mojo/parameter.h"
#include "mojo/status.h"

namespace mojo::driver {

// Optional abilities, one bit each. Capabilities are asked, never guessed from a null method.
enum class Capability : std::uint32_t {
  events = 1u << 0,                  // Queue::record / wait, Device::create_event
  multiple_queues = 1u << 1,         // create_queue gives independent queues (else one queue a device)
  host_functions = 1u << 2,          // Queue::host_task
  wait_values = 1u << 3,             // Queue::wait_value / write_value
  peer_copies = 1u << 4,             // Queue::copy between devices without passing through host memory
  host_accessible_memory = 1u << 5,  // host tasks may dereference DevicePtr (the host device)
  portable_pinned_memory = 1u << 6,  // pinned memory counts as pinned for every device of the driver
  async_host_copies = 1u << 7,       // pinned host-to-device copies may be queued (else complete when they return)
  launch = 1u << 8,                  // Device::load_module, Queue::launch
  compile = 1u << 9,                 // Device::compiler
};

class Capabilities {
 public:
  constexpr Capabilities() noexcept = default;
  constexpr Capabilities(Capability c) noexcept : bits_(static_cast<std::uint32_t>(c)) {}  // NOLINT: one bit is a set
  constexpr bool has(Capability c) const noexcept { return (bits_ & static_cast<std::uint32_t>(c)) != 0; }
  friend constexpr Capabilities operator|(Capabilities a, Capabilities b) noexcept {
    Capabilities r;
    r.bits_ = a.bits_ | b.bits_;
    return r;
  }
  constexpr Capabilities without(Capability c) const noexcept {
    Capabilities r;
    r.bits_ = bits_ & ~static_cast<std::uint32_t>(c);
    return r;
  }

 private:
  std::uint32_t bits_ = 0;
};
constexpr Capabilities operator|(Capability a, Capability b) noexcept { return Capabilities(a) | Capabilities(b); }

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

struct DeviceProperties {
  std::string name;                // for a person, "Host device (AMD EPYC 7B13)" for instance
  std::uint64_t total_memory = 0;  // bytes
  int multiprocessor_count = 0;    // hardware units that run blocks; on the host, worker threads
  int major = 0, minor = 0;        // compute capability, or 0.0
  int max_threads_per_block = 0;
  Dim3 max_block{0, 0, 0}, max_grid{0, 0, 0};     // in each dimension
  std::uint32_t max_argument_bytes = 0;           // of one launch, all arguments together
  std::uint64_t max_shared_memory_per_block = 0;  // bytes
  int warp_size = 1;
  int pci_bus_id = -1;  // -1: none
};

struct MemoryInfo {
  std::uint64_t free = 0, total = 0;  // bytes
};

// Lower number, higher priority: greatest <= p <= least.
struct PriorityRange {
  int least = 0, greatest = 0;
};

// Told of work that failed after it was enqueued. Called by the driver on a thread of its own, before the
// operation counts as complete, never under a lock of the driver. `tag` is the number given at the enqueue.
class FailureSink {
 public:
  virtual void on_failure(std::uint64_t tag, Status status) noexcept = 0;

 protected:
  ~FailureSink() = default;
};

struct QueueOptions {
  int priority = 0;                 // clamped to the device's range
  bool is_default = false;          // the device's stream 0
  FailureSink* failures = nullptr;  // outlives the queue; may be null (failures are then logged)
};

using mojo::HostTask;  // `run` is called inside a HostTaskScope; its failure goes to the FailureSink

enum class CopyKind : std::uint8_t { host_to_device, device_to_host, device_to_device };

// One linear copy of `bytes` bytes. Host addresses are pinned memory of the driver, read or written when the copy runs,
// unless `host_pageable`: then the driver is done with them when the call returns. Zero bytes is a
// no-op that still keeps its place in the order.
struct Copy {
  CopyKind kind = CopyKind::device_to_device;
  DevicePtr dst, src;              // the device side(s)
  void* host_dst = nullptr;        // device_to_host
  const void* host_src = nullptr;  // host_to_device
  std::uint64_t bytes = 0;
  bool host_pageable = false;
  int dst_device = -1, src_device = -1;  // device_to_device across devices: both indices; -1: the queue's own
};

// `pattern` (1, 2, 4 or 8 bytes wide) repeated over `bytes` bytes, a multiple of the width.
struct Fill {
  DevicePtr dst;
  std::uint64_t bytes = 0;
  std::uint64_t pattern = 0;
  std::uint8_t width = 1;
};

class Kernel;

// A vendor's launch attribute, by the vendor's number.
struct LaunchAttribute {
  std::uint32_t id = 0;
  std::uint64_t value = 0;
};

// Bytes that the module's constant of that name holds from this launch on; copied at the call.
struct ConstantMapping {
  std::string_view name;
  std::span<const std::byte> bytes;
};

// A kernel launch. `arguments[i]` points to `argument_sizes[i]` bytes which are copied at the call. The kernel and its
// module may be destroyed while launches are pending. What a driver lacks (a cluster other than 1 x 1 x 1, attributes,
// constants) is `unsupported` where it is asked for.
struct Launch {
  Kernel* kernel = nullptr;
  Dim3 grid, block, cluster;
  std::uint32_t shared_memory_bytes = 0;
  std::span<const void* const> arguments;
  std::span<const std::uint32_t> argument_sizes;
  std::span<const Access> accesses;
  std::span<const LaunchAttribute> attributes;
  std::span<const ConstantMapping> constants;
};

struct EventOptions {
  bool timing = false;
  bool blocking = false;  // the host sleeps instead of spinning in Event::synchronize
};

// A marker that can be recorded on queues of its device again and again. It is versioned: query, synchronize and
// Queue::wait mean the record that is latest when the call is made. Never recorded counts as complete.
// Destroying an Event while records or waits on it are pending is safe.
class Event {
 public:
  virtual ~Event() = default;
  virtual Status query(bool& complete) noexcept = 0;
  // Blocks the host until the latest record is complete.
  virtual Status synchronize() noexcept = 0;
  // Milliseconds of device time from `start` to this event; both made with timing, recorded and complete.
  virtual Status elapsed_since(Event& start, double& milliseconds) noexcept = 0;
};

// One entry point of a loaded module. May outlive the Module.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // What its parameters are, in order; false where the driver's images do not tell. Lives as long as the kernel.
  virtual bool parameters(std::span<const ParameterDescription>&) const noexcept { return false; }
};

class Module {
 public:
  virtual ~Module() = default;
  // `invalid_argument` naming the entry if the image has none of that name.
  virtual Status kernel(std::string_view name, std::unique_ptr<Kernel>& out) noexcept = 0;
};

// A hardware queue. `tag` numbers the operation; tags of one queue grow.
class Queue {
 public:
  // The runtime destroys queues only at shutdown or when a test tears a device down, idle or not: pending work is
  // dropped (HostTask::drop) and the running operation is waited for.
  virtual ~Queue() = default;

  virtual Status launch(const Launch& launch, std::uint64_t tag) noexcept = 0;
  virtual Status copy(const Copy& copy, std::uint64_t tag) noexcept = 0;  // blocks the host only if host_pageable
  virtual Status fill(const Fill& fill, std::uint64_t tag) noexcept = 0;
  virtual Status host_task(const HostTask& task, std::span<const Access> accesses, std::uint64_t tag) noexcept = 0;

  virtual Status record(Event& event, std::uint64_t tag) noexcept = 0;
  // Later work of this queue runs after the event's latest record, as of this call; the event may belong to
  // another device of the driver. A never-recorded event is a no-op.
  virtual Status wait(Event& event, std::uint64_t tag) noexcept = 0;

  // Holds the queue until the 64-bit value at `address` (Device::allocate_value) equals `value`. Holds no host thread
  // and no other queue.
  virtual Status wait_value(const std::uint64_t* address, std::uint64_t value, std::uint64_t tag) noexcept = 0;
  // Stores `value` at `address` in queue order.
  virtual Status write_value(std::uint64_t* address, std::uint64_t value, std::uint64_t tag) noexcept = 0;
  // Keeps the queue busy for `nanoseconds` of device time, holding no host thread.
  virtual Status delay(std::uint64_t nanoseconds, std::uint64_t tag) noexcept = 0;

  // Whether all that was enqueued before the call is complete: false while the last operation still runs.
  virtual Status query(bool& complete) noexcept = 0;
  // Blocks the host until all that was enqueued before the call is complete.
  virtual Status synchronize() noexcept = 0;
  // Every operation with a tag up to this is complete: a lower bound read without a driver call, so that the allocator
  // need not record events where the driver knows its own progress. 0 is always a right answer.
  virtual std::uint64_t completed_tag() const noexcept { return 0; }

  virtual Status begin_capture() noexcept = 0;
  virtual Status end_capture() noexcept = 0;

  // CUstream, hipStream_t; on the host device a stable non-null address that identifies the queue.
  virtual void* native_handle() noexcept = 0;
  virtual int priority() const noexcept = 0;  // after clamping
};

class Device {
 public:
  virtual ~Device() = default;
  virtual Capabilities capabilities() const noexcept = 0;
  virtual Status properties(DeviceProperties& out) noexcept = 0;
  virtual PriorityRange priority_range() const noexcept = 0;

  // Raw segments of device memory, for the caching allocator above. `free` requires that no queued work uses it.
  virtual Status allocate(std::uint64_t bytes, DevicePtr& out) noexcept = 0;
  virtual Status free(DevicePtr ptr) noexcept = 0;
  virtual Status memory_info(MemoryInfo& out) noexcept = 0;

  // Page-locked host memory, as the caching pinned allocator's upstream.
  virtual Status allocate_pinned(std::uint64_t bytes, void*& out) noexcept = 0;
  virtual Status free_pinned(void* ptr) noexcept = 0;

  // A 64-bit slot, zero at first, that queues wait for and host threads signal (CompletionFlag).
  virtual Status allocate_value(std::uint64_t*& out) noexcept = 0;
  virtual Status free_value(std::uint64_t* address) noexcept = 0;
  // Stores `value` so that waiting queues see it. Blocks nothing. Allowed from host tasks.
  virtual Status signal_value(std::uint64_t* address, std::uint64_t value) noexcept = 0;
  // Ends every wait on `address` with a failure of status `why` in its queue (the flag is being destroyed).
  virtual Status abandon_value(std::uint64_t* address, const Status& why) noexcept = 0;

  virtual Status create_queue(const QueueOptions& options, std::unique_ptr<Queue>& out) noexcept = 0;
  virtual Status create_event(const EventOptions& options, std::unique_ptr<Event>& out) noexcept = 0;
  // The compiler for this device, which the device owns: it lives as long. `unavailable` where none is installed is
  // Compiler's to say.
  virtual Status compiler(Compiler*& out) noexcept = 0;
  // Loads what the compiler made. The image is copied.
  virtual Status load_module(std::span<const std::byte> image, std::unique_ptr<Module>& out) noexcept = 0;
  // Lets this device's queues reach the other's memory; `unsupported` where they cannot.
  virtual Status enable_peer(Device& other) noexcept = 0;

  // A driver's own switch, `schedule` on the host device; `unsupported` for an unknown name. See the driver's README.
  virtual Status set_option(std::string_view name, std::string_view value) noexcept = 0;
};

class Driver {
 public:
  virtual ~Driver() = default;
  virtual const char* name() const noexcept = 0;  // "host", "cuda", "hip", "metal"
  // How many devices there are. Starts no thread and makes no device context, so that a fork after it is safe.
  virtual Status device_count(int& out) noexcept = 0;
  // Opens device `index`, once; may start threads.
  virtual Status open(int index, std::unique_ptr<Device>& out) noexcept = 0;
  // The process is exiting: stop after the running operations, drop the rest, join with a deadline.
  virtual void shut_down() noexcept = 0;
};

// The initial-exec model: every call of the device API asks, and a call into the loader's tables would be a fifth of it.
#if defined(__linux__) || defined(__FreeBSD__)
extern thread_local constinit bool inside_host_task __attribute__((tls_model("initial-exec")));
#else
extern thread_local constinit bool inside_host_task;
#endif
// Whether this thread is inside HostTask::run. Calls to the device API are refused there.
inline bool in_host_task() noexcept { return inside_host_task; }

// Held by a driver around HostTask::run.
class HostTaskScope {
 public:
  HostTaskScope() noexcept : outer_(inside_host_task) { inside_host_task = true; }
  ~HostTaskScope() { inside_host_task = outer_; }
  HostTaskScope(const HostTaskScope&) = delete;
  HostTaskScope& operator=(const HostTaskScope&) = delete;

 private:
  bool outer_;
};

}  // namespace mojo::driver
