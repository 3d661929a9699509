// What it is: CachingAllocator, one device's memory: segments got from the device, cut into blocks that are handed out,
//   taken back and used again, without asking the device or making any stream wait.
// Ordering: a block is handed to stream R only if every recorded use of it is complete or already ordered before R's
//   next operation. Neither allocate nor free enqueues anything (a FenceSource may record fences for recorded uses).
// Threads: every method may be called from any thread; one mutex, and no call of the driver under it. free and
//   record_stream never block the host; allocate does only in SegmentSource calls and, out of memory, in FenceSource::wait.
// Errors: Status. out_of_memory says what was asked, free, allocated and reserved; a pointer that is not a live block is
//   invalid_argument and changes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "memory/sources.h"
#include "memory/statistics.h"
#include "mojo/allocation_policy.h"

namespace mojo::memory {

struct Block;

struct CachingAllocatorOptions {
  std::string device_name = "device";  // in error texts: "mojo:0"
  AllocationPolicy policy = {};
};

// A live piece of memory. `block` is a handle that makes free and record_stream cheaper than by address.
struct Allocation {
  DevicePtr ptr;
  Block* block = nullptr;
  std::uint64_t bytes = 0;  // at least what was asked
};

enum class BlockState : std::uint8_t { inactive, allocated, active_pending_free };

struct BlockSnapshot {
  DevicePtr address;
  std::uint64_t size = 0, requested = 0;
  BlockState state = BlockState::inactive;
  StreamUid stream = 0;  // the owner; of inactive memory 0 if it is at anyone's disposal
};

struct SegmentSnapshot {
  DevicePtr address;
  std::uint64_t total_size = 0, requested_size = 0, allocated_size = 0, active_size = 0;
  StreamUid stream = 0;  // the stream it was got for
  bool is_large = false;
  std::vector<BlockSnapshot> blocks;  // by address, without gaps
};

class CachingAllocator {
 public:
  // Both sources outlive the allocator.
  CachingAllocator(SegmentSource& segments, FenceSource& fences, CachingAllocatorOptions options = {});
  // Returns every segment, live blocks or not: the caller has seen to it that no queued work uses them.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  // Memory for work on `stream`, its owner from now on. Zero bytes give a null Allocation.
  Status allocate(std::uint64_t bytes, StreamUid stream, Allocation& out) noexcept;

  // Gives a block back. Its owner may have it again at once; a stream named by record_stream holds it up until what is
  // now enqueued on that stream is complete or ordered before whoever asks. Null is a no-op.
  Status free(Block* block) noexcept;
  Status free(DevicePtr ptr) noexcept;  // the address allocate gave

  // The block is used on `stream` too. The address may be anywhere inside the block. The owner's own stream is no news.
  Status record_stream(Block* block, StreamUid stream) noexcept;
  Status record_stream(DevicePtr ptr, StreamUid stream) noexcept;

  // What the handle of a live block alone tells (torch's deleters get nothing else): the allocator that made it, its
  // address, all of it.
  static CachingAllocator& owner_of(const Block* block) noexcept;
  static DevicePtr address_of(const Block* block) noexcept;
  static Allocation allocation_of(Block& block) noexcept;

  // The live block around an address; a null Allocation if there is none.
  Allocation find(DevicePtr ptr) const noexcept;

  // Returns to the device every segment that is free and that no queued work uses. Does not wait: segments whose streams
  // are still busy stay.
  Status empty_cache() noexcept;

  // The most bytes to hold reserved; 0: no limit. Memory already reserved stays.
  void set_limit(std::uint64_t bytes) noexcept;
  std::uint64_t limit() const noexcept;

  DeviceStatistics statistics() const;
  void reset_peak_statistics() noexcept;
  void reset_accumulated_statistics() noexcept;
  std::vector<SegmentSnapshot> snapshot() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mojo::memory
