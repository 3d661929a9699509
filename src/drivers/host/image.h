// What it is: HostImage, a compiled image in this process, and the driver's Module and Kernel over it.
// Ordering: none. Threads: any; an image is immutable, and unloaded with its last reference, which pending launches hold.
// Errors: `invalid_argument` for what is no image of this driver's compiler, with the loader's words, and for a name
//   that is not in it.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "driver/driver.h"
#include "drivers/host/kernel_abi.h"

namespace mojo::host {

class HostImage {
 public:
  static Status load(std::span<const std::byte> bytes, std::shared_ptr<const HostImage>& out);
  ~HostImage();
  HostImage(const HostImage&) = delete;
  HostImage& operator=(const HostImage&) = delete;

  const MojoHostEntry* entry(std::string_view name) const;  // or null
  // Whether a kernel in it waits at barriers: its threads then need stacks of their own.
  bool has_barrier() const noexcept { return has_barrier_; }

 private:
  explicit HostImage(void* handle) noexcept;

  void* const handle_;
  const bool has_barrier_;
};

class HostKernel final : public driver::Kernel {
 public:
  HostKernel(std::shared_ptr<const HostImage> of, const MojoHostEntry& given);
  bool parameters(std::span<const ParameterDescription>& out) const noexcept override {
    out = parameters_;
    return true;
  }

  const std::shared_ptr<const HostImage> image;
  const MojoHostEntry& entry;

 private:
  std::vector<ParameterDescription> parameters_;
};

class HostModule final : public driver::Module {
 public:
  explicit HostModule(std::shared_ptr<const HostImage> image) : image_(std::move(image)) {}
  Status kernel(std::string_view name, std::unique_ptr<driver::Kernel>& out) noexcept override;

 private:
  const std::shared_ptr<const HostImage> image_;
};

}  // namespace mojo::host
