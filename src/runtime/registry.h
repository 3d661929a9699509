// What it is: Registry, the process's driver and its opened devices.
// Ordering: none. Threads: any; a device is opened once, by whoever asks first.
// Errors: Status. Choosing a driver and counting its devices starts no thread and makes no context.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "base/append_table.h"
#include "base/env.h"
#include "driver/driver.h"
#include "mojo/allocation_policy.h"

namespace mojo::detail {
class DeviceState;
class StreamState;
}  // namespace mojo::detail

namespace mojo::runtime {

// Makes the driver that `settings` name. Defined where runtime and drivers are joined (src/library.cpp), or by a test.
Status make_process_driver(const base::Settings& settings, std::unique_ptr<driver::Driver>& out) noexcept;

class Registry {
 public:
  static Registry& instance() noexcept;  // leaked on purpose: it must outlive every static object that frees memory

  // Chooses the driver if none is chosen yet. A failure is not remembered: the next question asks again.
  Status choose_driver() noexcept;
  Status driver_name(std::string& out) noexcept;
  Status device_count(int& out) noexcept;
  // The state of device `index`, opened now if need be.
  Status device(int index, detail::DeviceState*& out) noexcept;
  detail::DeviceState* opened(int index) const noexcept;  // or null
  // For the allocators of devices opened from now on; failed_precondition if one is open already with another policy.
  Status set_allocation_policy(const AllocationPolicy& policy) noexcept;
  const base::Settings& settings() const noexcept { return settings_; }

  // Every stream of every device by its process-unique number.
  base::AppendTable<detail::StreamState>& streams() noexcept { return streams_; }
  std::mutex& streams_mutex() noexcept { return streams_mutex_; }

  void shut_down() noexcept;
  // Replaces driver and devices, leaking the old ones after shutting their driver down.
  void reset_for_test(std::unique_ptr<driver::Driver> driver, const base::Settings& settings = {});

  static constexpr int max_devices = 64;

 private:
  Registry() = default;

  std::mutex mutex_;
  std::unique_ptr<driver::Driver> driver_;
  base::Settings settings_;
  AllocationPolicy policy_;
  int count_ = -1;
  std::atomic<detail::DeviceState*> devices_[max_devices] = {};
  std::mutex streams_mutex_;
  base::AppendTable<detail::StreamState> streams_;
};

}  // namespace mojo::runtime
