#include "runtime/registry.h"

#include <vector>

#include "runtime/device_state.h"
#include "runtime/process_state.h"

namespace mojo::runtime {

Registry& Registry::instance() noexcept {
  static auto* registry = new Registry;
  return *registry;
}

Status Registry::choose_driver() noexcept {
  if (in_bad_fork()) return usable();  // the lock may be held for ever by a thread the child does not have
  const std::lock_guard lock(mutex_);
  if (driver_ != nullptr) return {};
  base::Settings settings;
  MOJO_RETURN_IF_ERROR(base::load_settings(settings));
  std::unique_ptr<driver::Driver> driver;
  MOJO_RETURN_IF_ERROR(make_process_driver(settings, driver));
  int count = 0;
  MOJO_RETURN_IF_ERROR(driver->device_count(count));
  settings_ = std::move(settings);
  count_ = count < max_devices ? count : max_devices;
  driver_ = std::move(driver);
  return {};
}

Status Registry::driver_name(std::string& out) noexcept {
  MOJO_RETURN_IF_ERROR(choose_driver());
  out = driver_->name();
  return {};
}

Status Registry::device_count(int& out) noexcept {
  if (in_bad_fork()) {  // asking stays allowed in a forked child; the count was fixed before the fork
    out = count_ < 0 ? 0 : count_;
    return {};
  }
  MOJO_RETURN_IF_ERROR(choose_driver());
  out = count_;
  return {};
}

detail::DeviceState* Registry::opened(int index) const noexcept {
  if (index < 0 || index >= max_devices) return nullptr;
  return devices_[index].load(std::memory_order_acquire);
}

Status Registry::device(int index, detail::DeviceState*& out) noexcept {
  out = opened(index);
  if (out != nullptr) [[likely]]
    return {};
  MOJO_RETURN_IF_ERROR(usable());
  MOJO_RETURN_IF_ERROR(choose_driver());
  if (index < 0 || index >= count_) {
    return {StatusCode::out_of_range, "device index " + std::to_string(index) + " is out of range: driver '" +
                                          driver_->name() + "' has " + std::to_string(count_) +
                                          (count_ == 1 ? " device" : " devices") + ", valid indices are 0 to " +
                                          std::to_string(count_ - 1)};
  }
  const std::lock_guard lock(mutex_);
  out = opened(index);
  if (out != nullptr) return {};
  std::unique_ptr<driver::Device> device;
  MOJO_RETURN_IF_ERROR(driver_->open(index, device));
  out = new detail::DeviceState(index, driver_->name(), std::move(device), settings_,
                                policy_);  // lives until the process ends
  devices_[index].store(out, std::memory_order_release);
  device_was_opened();
  return {};
}

Status Registry::set_allocation_policy(const AllocationPolicy& policy) noexcept {
  if (!(policy.garbage_collection_threshold >= 0 && policy.garbage_collection_threshold < 1)) {
    return {StatusCode::invalid_argument,
            "allocation policy: garbage_collection_threshold must be at least 0 and less than 1"};
  }
  const std::lock_guard lock(mutex_);
  if (policy == policy_) return {};
  for (int i = 0; i < max_devices; ++i) {
    if (opened(i) != nullptr) {
      return {StatusCode::failed_precondition, "allocation policy: device " + std::to_string(i) + " is already open"};
    }
  }
  policy_ = policy;
  return {};
}

void Registry::shut_down() noexcept {
  driver::Driver* driver = nullptr;
  {
    const std::lock_guard lock(mutex_);
    driver = driver_.get();
  }
  if (driver != nullptr) driver->shut_down();
}

void Registry::reset_for_test(std::unique_ptr<driver::Driver> driver, const base::Settings& settings) {
  shut_down();
  const std::lock_guard lock(mutex_);
  for (auto& device : devices_) device.store(nullptr);
  static auto* retired =
      new std::vector<std::unique_ptr<driver::Driver>>;  // states of old devices still point into them
  retired->push_back(std::move(driver_));
  settings_ = settings;
  driver_ = std::move(driver);
  policy_ = {};
  count_ = -1;
  if (driver_ != nullptr) static_cast<void>(driver_->device_count(count_));
  reset_process_state_for_test();
}

}  // namespace mojo::runtime
