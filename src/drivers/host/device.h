// What it is: HostDevice, one device of the host driver: its memory, its queues and events, its options.
// Ordering: none of its own. Threads: any. Errors: as driver.h; in a forked child `forked`, while frees return quietly.
#pragma once

#include <memory>
#include <mutex>

#include "driver/driver.h"
#include "drivers/host/compiler.h"
#include "drivers/host/host_driver.h"
#include "drivers/host/memory.h"
#include "drivers/host/scheduler.h"

namespace mojo::host {

class HostDevice final : public driver::Device {
 public:
  HostDevice(std::shared_ptr<Scheduler> scheduler, int index, const HostOptions& options, std::uint64_t capacity);
  ~HostDevice() override;

  driver::Capabilities capabilities() const noexcept override;
  Status properties(driver::DeviceProperties& out) noexcept override;
  driver::PriorityRange priority_range() const noexcept override;
  Status allocate(std::uint64_t bytes, DevicePtr& out) noexcept override;
  Status free(DevicePtr ptr) noexcept override;
  Status memory_info(driver::MemoryInfo& out) noexcept override;
  Status allocate_pinned(std::uint64_t bytes, void*& out) noexcept override;
  Status free_pinned(void* ptr) noexcept override;
  Status allocate_value(std::uint64_t*& out) noexcept override;
  Status free_value(std::uint64_t* address) noexcept override;
  Status signal_value(std::uint64_t* address, std::uint64_t value) noexcept override;
  Status abandon_value(std::uint64_t* address, const Status& why) noexcept override;
  Status create_queue(const driver::QueueOptions& options, std::unique_ptr<driver::Queue>& out) noexcept override;
  Status create_event(const driver::EventOptions& options, std::unique_ptr<driver::Event>& out) noexcept override;
  Status compiler(driver::Compiler*& out) noexcept override;
  Status load_module(std::span<const std::byte> image, std::unique_ptr<driver::Module>& out) noexcept override;
  Status enable_peer(driver::Device& other) noexcept override;
  Status set_option(std::string_view name, std::string_view value) noexcept override;

 private:
  // The queue of a device with one; closed when its last handle goes.
  struct SingleQueue {
    std::mutex mutex;
    QueueCore* core = nullptr;
    int handles = 0;
  };

  Status with_value(const std::uint64_t* address, const char* call, ValueSlot*& slot) noexcept;
  Status create_single_queue(const driver::QueueOptions& options, std::unique_ptr<driver::Queue>& out);

  const std::shared_ptr<Scheduler> scheduler_;
  const int index_;
  const bool single_queue_;
  const std::shared_ptr<SingleQueue> single_;
  std::unique_ptr<DeviceMemory> memory_;
  HostCompiler compiler_;
};

}  // namespace mojo::host
