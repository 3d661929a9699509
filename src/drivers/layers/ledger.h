// What it is: Ledger, what is alive in a driver under the `checked` layer: segments, pinned blocks, values,
//   events, kernels.
// Ordering: none. Threads: any. Errors: each check returns the Status that the call should fail with.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>

#include "driver/driver.h"

namespace mojo::layers {

class Ledger {
 public:
  Ledger();

  // In a forked child another thread may have held the lock: everything is let through, the driver beneath refuses.
  bool inherited() const noexcept;

  void add_segment(int device, DevicePtr ptr, std::uint64_t bytes);
  void add_pinned(int device, const void* ptr, std::uint64_t bytes);
  void add_value(int device, const std::uint64_t* address);
  void add_event(int device, const driver::Event* event);
  void add_kernel(int device, const driver::Kernel* kernel);
  void add_queue(int device, int change);
  void remove_event(const driver::Event* event);
  void remove_kernel(const driver::Kernel* kernel);

  // A free may go on; the entry is gone then, so that a second free is refused.
  Status take_segment(const char* call, int device, DevicePtr ptr);
  Status take_pinned(const char* call, const void* ptr);
  Status take_value(const char* call, const std::uint64_t* address);

  // `device` -1: any.
  Status check_range(const char* call, int device, DevicePtr ptr, std::uint64_t bytes) const;
  Status check_pinned(const char* call, const void* ptr, std::uint64_t bytes) const;
  Status check_value(const char* call, const std::uint64_t* address) const;
  // `device` -1: any. Reads the address alone, so a destroyed event is safe to ask about.
  Status check_event(const char* call, int device, const driver::Event* event) const;
  Status check_kernel(const char* call, int device, const driver::Kernel* kernel) const;
  Status check_accesses(const char* call, std::span<const Access> accesses) const;

  // What `device` still has, one line each kind, each followed by a newline; empty if nothing.
  std::string leaks(int device) const;

 private:
  struct Block {
    std::uint64_t bytes;
    int device;
  };
  static const std::pair<const std::uint64_t, Block>* find(const std::map<std::uint64_t, Block>& blocks,
                                                           std::uint64_t address);

  const pid_t owner_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Block> segments_, pinned_;      // by start address
  std::unordered_map<const std::uint64_t*, int> values_;  // and its device
  std::unordered_map<const driver::Event*, int> events_;
  std::unordered_map<const driver::Kernel*, int> kernels_;
  std::map<int, int> queues_;  // how many a device has
};

}  // namespace mojo::layers
