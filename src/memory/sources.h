// What it is: what the allocators need of the world, as interfaces: SegmentSource and PinnedSource give memory,
//   FenceSource knows how far streams are and who is ordered after whom. The runtime implements them; tests fake them.
// Ordering: the allocators enqueue nothing. A FenceSource that needs fences records them on the streams it is asked to.
// Threads: called from any thread. Methods marked [locked] are called with an allocator's mutex held: they make no
//   driver call, block on nothing but a stream's own lock, and never call an allocator. So nobody calls an allocator
//   while holding a stream's lock. All other methods are called with no lock of the allocator held.
// Errors: Status; nothing throws.
#pragma once

#include <cstdint>

#include "mojo/device_ptr.h"
#include "mojo/status.h"
#include "ordering/clock.h"

namespace mojo::memory {

using ordering::Position;
using ordering::StreamUid;

// Device memory in large pieces.
class SegmentSource {
 public:
  // On out_of_memory the allocator releases its cache and tries once more, and explains a second failure with figures.
  // Every other failure is returned as it is.
  virtual Status allocate(std::uint64_t bytes, DevicePtr& out) noexcept = 0;
  // No queued work uses the memory.
  virtual Status free(DevicePtr ptr, std::uint64_t bytes) noexcept = 0;
  // For the text of an out-of-memory error, and to tell whether waiting could help. Zeros: unknown.
  virtual void memory_info(std::uint64_t& free, std::uint64_t& total) noexcept = 0;

 protected:
  ~SegmentSource() = default;
};

// Page-locked host memory.
class PinnedSource {
 public:
  virtual Status allocate(std::uint64_t bytes, void*& out) noexcept = 0;
  virtual Status free(void* ptr, std::uint64_t bytes) noexcept = 0;

 protected:
  ~PinnedSource() = default;
};

// Something recorded on a stream, a driver's event for instance. The value is the FenceSource's own; 0 is no fence.
struct Fence {
  std::uint64_t value = 0;
  explicit operator bool() const noexcept { return value != 0; }
};

class FenceSource {
 public:
  // [locked] The number of the last operation enqueued on `stream`; later operations get greater numbers. If work may
  // be on the stream that has no number (its native handle is known outside), a number that stands for it too.
  virtual std::uint64_t position(StreamUid stream) noexcept = 0;
  // [locked] A lower bound of how many of the first operations of `stream` are complete, as far as is known without asking
  // the driver. 0 is always right; it never goes back.
  virtual std::uint64_t completed(StreamUid stream) noexcept = 0;
  // [locked] How many of the first operations of `stream` the next operation of `after` is ordered after, as far as is known
  // (the `stream` entry of the clock of `after`). 0 is always right. Never called with stream == after.
  virtual std::uint64_t ordered_before(StreamUid stream, StreamUid after) noexcept = 0;

  // As `completed`, but may ask the driver; does not block.
  virtual std::uint64_t poll_completed(StreamUid stream) noexcept { return completed(stream); }
  // Blocks the host until `position` is complete: afterwards completed() says so. Called only when an allocation would
  // otherwise fail. `fence` was recorded at `position` or later, or is none.
  virtual Status wait(Position position, Fence fence) noexcept = 0;

  // Whether completed() cannot be relied on to advance by itself, so that freed memory in use by another stream needs a
  // fence. Asked once. If false, none of the methods below is called.
  virtual bool needs_fences() const noexcept { return false; }
  // Records a (pooled) fence on the stream behind all that is enqueued.
  virtual Status record_fence(StreamUid, Fence& out) noexcept {
    out = {};
    return {};
  }
  // Whether all that is before the fence is complete. Asks the driver; does not block.
  virtual bool fence_done(Fence) noexcept { return false; }
  // [locked] The fence is not asked about again: it goes back to its pool.
  virtual void release_fence(Fence) noexcept {}

 protected:
  ~FenceSource() = default;
};

}  // namespace mojo::memory
