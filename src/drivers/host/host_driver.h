// What it is: the built-in host driver: a real asynchronous device whose queues run on a few worker threads.
// Ordering: queues are FIFOs; nothing orders two queues but events, values and the host's waits (driver.h).
// Threads: any. Counting devices starts no thread; the first enqueue does. The workers serve all its devices.
// Errors: Status. In a child forked after a device was used, every call that needs one returns `forked`.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "driver/driver.h"

namespace mojo::host {

struct HostOptions {
  int devices = 1;
  std::uint64_t memory_bytes = 0;  // capacity of each device; 0: three quarters of the machine's memory / devices
  int workers = 0;                 // 0: as many as the cores this process may use, at least two
  bool single_queue = false;       // behave as a device with one queue and no events
  std::string schedule = "fifo";   // or "random:SEED": see random_schedule.h
  std::string compiler;            // of device functions, a path or a name, and no other will do
  std::string preferred_compiler;  // if that is empty: this one if it works, else c++, g++ or clang++
  bool scribble_freed = false;     // overwrite segments with 0xCD before they go back to the system
};

// Never null. A `schedule` that does not parse is reported by Driver::open.
std::unique_ptr<driver::Driver> make_host_driver(const HostOptions& options);

}  // namespace mojo::host
