#include "gate.h"

#include "mojo/device_context.h"
#include "mojo/host_task.h"

namespace mojo::python {

namespace {

using Reached = std::shared_ptr<std::atomic<bool>>;

Status report_reached(void* state) noexcept {
  const std::unique_ptr<Reached> reached(static_cast<Reached*>(state));
  (*reached)->store(true, std::memory_order_release);
  return {};
}

void drop_report(void* state) noexcept { delete static_cast<Reached*>(state); }

}  // namespace

Gate::Gate(DeviceStream stream)
    : flag_(DeviceContext(stream.device_index())), reached_(std::make_shared<std::atomic<bool>>(false)) {
  auto report = std::make_unique<Reached>(reached_);
  stream.enqueue_host_task({.run = &report_reached, .drop = &drop_report, .state = report.get(), .name = "gate"});
  static_cast<void>(report.release());  // the task's now
  stream.wait_for_host_value(flag_, opened);
}

}  // namespace mojo::python
