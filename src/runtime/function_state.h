// What it is: FunctionState, what the DeviceFunctions of one compile_function share: the driver's kernel.
// Ordering: none; the kernel may go while launches of it are pending.
// Threads: immutable, any. Errors: none.
#pragma once

#include <memory>
#include <string>

#include "driver/driver.h"

namespace mojo::detail {

class DeviceState;

class FunctionState {
 public:
  FunctionState(DeviceState& device, std::string name, std::unique_ptr<driver::Kernel> kernel) noexcept
      : device_(device), name_(std::move(name)), kernel_(std::move(kernel)) {}
  ~FunctionState();
  FunctionState(const FunctionState&) = delete;
  FunctionState& operator=(const FunctionState&) = delete;

  DeviceState& device() const noexcept { return device_; }
  const std::string& name() const noexcept { return name_; }
  driver::Kernel& kernel() const noexcept { return *kernel_; }

 private:
  DeviceState& device_;
  const std::string name_;
  std::unique_ptr<driver::Kernel> kernel_;
};

}  // namespace mojo::detail
