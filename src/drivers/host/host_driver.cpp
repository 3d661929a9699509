#include "drivers/host/host_driver.h"

#include <new>
#include <string>

#include "drivers/host/device.h"
#include "drivers/host/scheduler.h"

namespace mojo::host {
namespace {

class HostDriver final : public driver::Driver {
 public:
  explicit HostDriver(const HostOptions& options)
      : options_(options), scheduler_(std::make_shared<Scheduler>(options.workers)) {
    bool random = false;
    std::uint64_t seed = 0;
    invalid_ = Scheduler::parse_schedule(options.schedule, random, seed);
    if (invalid_.ok()) invalid_ = scheduler_->set_schedule(options.schedule);
    if (options.devices < 0) {
      invalid_ = Status(StatusCode::invalid_argument,
                        "host driver: " + std::to_string(options.devices) + " devices asked for; 0 or more can be");
    }
  }
  ~HostDriver() override { shut_down(); }

  const char* name() const noexcept override { return "host"; }

  Status device_count(int& out) noexcept override {
    out = options_.devices > 0 ? options_.devices : 0;
    return {};
  }

  Status open(int index, std::unique_ptr<driver::Device>& out) noexcept override {
    MOJO_RETURN_IF_ERROR(invalid_);
    if (index < 0 || index >= options_.devices) {
      return Status(StatusCode::out_of_range, "host driver: no device " + std::to_string(index) + "; there are " +
                                                  std::to_string(options_.devices) + ", from 0");
    }
    if (scheduler_->forked()) return scheduler_->forked_status();
    if (scheduler_->stopping()) return scheduler_->stopped_status();
    const std::uint64_t capacity = options_.memory_bytes != 0
                                       ? options_.memory_bytes
                                       : machine_memory() / 4 * 3 / static_cast<std::uint64_t>(options_.devices);
    try {
      out = std::make_unique<HostDevice>(scheduler_, index, options_, capacity);
      return {};
    } catch (const std::bad_alloc&) {
      return Status(StatusCode::out_of_memory, "host driver: no host memory for a device");
    }
  }

  void shut_down() noexcept override { scheduler_->shut_down(); }

 private:
  const HostOptions options_;
  const std::shared_ptr<Scheduler> scheduler_;
  Status invalid_;
};

}  // namespace

std::unique_ptr<driver::Driver> make_host_driver(const HostOptions& options) {
  return std::make_unique<HostDriver>(options);
}

}  // namespace mojo::host
