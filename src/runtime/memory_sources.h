// What it is: what the allocators of src/memory need of the world, served by drivers, streams and clocks.
// Ordering: ClockFenceSource answers from the streams' numbers and clocks; it records markers only where a driver does
//   not know its own progress.
// Threads: any. Errors: Status.
#pragma once

#include "driver/driver.h"
#include "memory/sources.h"

namespace mojo::runtime {

class DeviceSegmentSource final : public memory::SegmentSource {
 public:
  explicit DeviceSegmentSource(driver::Device& device) noexcept : device_(device) {}
  Status allocate(std::uint64_t bytes, DevicePtr& out) noexcept override { return device_.allocate(bytes, out); }
  Status free(DevicePtr ptr, std::uint64_t) noexcept override { return device_.free(ptr); }
  void memory_info(std::uint64_t& free, std::uint64_t& total) noexcept override;

 private:
  driver::Device& device_;
};

// One for all devices: stream numbers are unique in the process.
class ClockFenceSource final : public memory::FenceSource {
 public:
  std::uint64_t position(memory::StreamUid stream) noexcept override;
  std::uint64_t completed(memory::StreamUid stream) noexcept override;
  std::uint64_t ordered_before(memory::StreamUid stream, memory::StreamUid after) noexcept override;
  std::uint64_t poll_completed(memory::StreamUid stream) noexcept override;
  Status wait(memory::Position position, memory::Fence fence) noexcept override;
};

}  // namespace mojo::runtime
