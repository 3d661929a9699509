#include "drivers/builtin.h"

#include "drivers/host/host_driver.h"
#include "drivers/layers/checked.h"

namespace mojo::drivers {
namespace {

std::unique_ptr<driver::Driver> make_host(const base::Settings& settings) {
  host::HostOptions options;
  options.devices = settings.host_devices;
  options.memory_bytes = settings.host_memory;
  options.workers = settings.host_workers;
  options.single_queue = settings.host_single_queue;
  options.schedule = settings.host_schedule;
  options.compiler = settings.host_compiler;
  options.preferred_compiler = settings.preferred_host_compiler;
  options.scribble_freed = settings.check_driver;
  return host::make_host_driver(options);
}

}  // namespace

Status make_builtin(const base::Settings& settings, std::unique_ptr<driver::Driver>& out) noexcept {
  // More drivers come before the host device here, the first with a device winning.
  if (settings.driver != "auto" && settings.driver != "host") {
    return {StatusCode::invalid_argument, "TORCH_MOJO_BACKEND_DRIVER='" + settings.driver +
                                              "' is not valid: no such driver is built in; expected auto or host"};
  }
  out = make_host(settings);
  if (settings.check_driver) out = layers::make_checked(std::move(out));
  return {};
}

}  // namespace mojo::drivers
