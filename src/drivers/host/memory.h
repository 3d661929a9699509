// What it is: DeviceMemory, the raw segments of one host device, limited to its capacity; and page-aligned pinned
//   memory.
// Ordering: none; who frees knows that no queued work uses the segment. Work that does so all the same, for want of a
//   wait, finds other values there, as on any device, and no fault: addresses stay mapped. Threads: any.
// Errors: out_of_memory with the numbers; invalid_argument for an address that is not a segment's.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "driver/driver.h"

namespace mojo::host {

class DeviceMemory {
 public:
  DeviceMemory(int device, std::uint64_t capacity, bool scribble_freed) noexcept
      : device_(device), capacity_(capacity), scribble_freed_(scribble_freed) {}
  ~DeviceMemory();

  Status allocate(std::uint64_t bytes, DevicePtr& out) noexcept;
  Status free(DevicePtr ptr) noexcept;
  Status allocate_pinned(std::uint64_t bytes, void*& out) noexcept;
  Status free_pinned(void* ptr) noexcept;
  driver::MemoryInfo info() const noexcept;

 private:
  struct Segment {
    std::uint64_t bytes;
    bool mapped;  // by mmap, or from the heap
  };
  static Segment plan(std::uint64_t bytes) noexcept;
  static void* obtain(const Segment& segment) noexcept;
  void* take_spare(const Segment& segment) noexcept;
  bool keep_spare(void* address, const Segment& segment) noexcept;
  bool drop_spare() noexcept;  // whether there was any
  void give_back(void* address, const Segment& segment) noexcept;

  const int device_;
  const std::uint64_t capacity_;
  const bool scribble_freed_;
  mutable std::mutex mutex_;
  std::uint64_t used_ = 0;
  std::unordered_map<void*, Segment> segments_;
  // Mapped ranges that were given back, by size: their pages are the system's, their addresses wait for the next segment.
  std::unordered_multimap<std::uint64_t, void*> spare_;
  std::uint64_t spare_bytes_ = 0;
  std::unordered_map<void*, Segment> pinned_;
};

// Bytes of memory this machine, or the control group of this process, has.
std::uint64_t machine_memory() noexcept;

}  // namespace mojo::host
