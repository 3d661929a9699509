#include "drivers/layers/checked.h"

#include <atomic>

#include "base/report.h"
#include "drivers/layers/forward.h"
#include "drivers/layers/ledger.h"

namespace mojo::layers {
namespace {

class CheckedEvent final : public ForwardingEvent {
 public:
  CheckedEvent(std::unique_ptr<driver::Event> inner, std::shared_ptr<Ledger> ledger, int device)
      : ForwardingEvent(std::move(inner)), ledger_(std::move(ledger)) {
    ledger_->add_event(device, this);
  }
  ~CheckedEvent() override {
    if (!ledger_->inherited()) ledger_->remove_event(this);
  }
  Status elapsed_since(driver::Event& start, double& milliseconds) noexcept override {
    if (!ledger_->inherited()) MOJO_RETURN_IF_ERROR(ledger_->check_event("elapsed_since", -1, &start));
    return ForwardingEvent::elapsed_since(start, milliseconds);
  }

 private:
  const std::shared_ptr<Ledger> ledger_;
};

class CheckedKernel final : public ForwardingKernel {
 public:
  CheckedKernel(std::unique_ptr<driver::Kernel> inner, std::shared_ptr<Ledger> ledger, int device)
      : ForwardingKernel(std::move(inner)), ledger_(std::move(ledger)) {
    ledger_->add_kernel(device, this);
  }
  ~CheckedKernel() override {
    if (!ledger_->inherited()) ledger_->remove_kernel(this);
  }

 private:
  const std::shared_ptr<Ledger> ledger_;
};

class CheckedModule final : public ForwardingModule {
 public:
  CheckedModule(std::unique_ptr<driver::Module> inner, std::shared_ptr<Ledger> ledger, int device)
      : ForwardingModule(std::move(inner)), ledger_(std::move(ledger)), device_(device) {}

 private:
  std::unique_ptr<driver::Kernel> wrap_kernel(std::unique_ptr<driver::Kernel> kernel) override {
    return std::make_unique<CheckedKernel>(std::move(kernel), ledger_, device_);
  }
  const std::shared_ptr<Ledger> ledger_;
  const int device_;
};

class CheckedQueue final : public ForwardingQueue {
 public:
  CheckedQueue(std::unique_ptr<driver::Queue> inner, std::shared_ptr<Ledger> ledger, int device)
      : ForwardingQueue(std::move(inner)), ledger_(std::move(ledger)), device_(device) {
    ledger_->add_queue(device_, 1);
  }
  ~CheckedQueue() override {
    if (!ledger_->inherited()) ledger_->add_queue(device_, -1);
  }

  Status launch(const driver::Launch& launch, std::uint64_t tag) noexcept override {
    if (!ledger_->inherited()) {
      if (launch.kernel == nullptr || launch.arguments.size() != launch.argument_sizes.size()) {
        return Status(StatusCode::invalid_argument, "checked driver: launch: no kernel, or sizes that do not match");
      }
      MOJO_RETURN_IF_ERROR(ledger_->check_kernel("launch", device_, launch.kernel));
      MOJO_RETURN_IF_ERROR(ledger_->check_accesses("launch", launch.accesses));
      MOJO_RETURN_IF_ERROR(check_tag("launch", tag));
    }
    return ForwardingQueue::launch(launch, tag);
  }
  Status copy(const driver::Copy& copy, std::uint64_t tag) noexcept override {
    if (!ledger_->inherited()) {
      if (copy.kind != driver::CopyKind::device_to_host) {
        const int device = copy.dst_device >= 0 ? copy.dst_device : device_;
        MOJO_RETURN_IF_ERROR(ledger_->check_range("copy to", device, copy.dst, copy.bytes));
      } else if (!copy.host_pageable) {
        MOJO_RETURN_IF_ERROR(ledger_->check_pinned("copy to", copy.host_dst, copy.bytes));
      }
      if (copy.kind != driver::CopyKind::host_to_device) {
        const int device = copy.src_device >= 0 ? copy.src_device : device_;
        MOJO_RETURN_IF_ERROR(ledger_->check_range("copy from", device, copy.src, copy.bytes));
      } else if (!copy.host_pageable) {
        MOJO_RETURN_IF_ERROR(ledger_->check_pinned("copy from", copy.host_src, copy.bytes));
      }
      MOJO_RETURN_IF_ERROR(check_tag("copy", tag));
    }
    return inner_->copy(copy, tag);
  }
  Status fill(const driver::Fill& fill, std::uint64_t tag) noexcept override {
    if (!ledger_->inherited()) {
      MOJO_RETURN_IF_ERROR(ledger_->check_range("fill", device_, fill.dst, fill.bytes));
      MOJO_RETURN_IF_ERROR(check_tag("fill", tag));
    }
    return inner_->fill(fill, tag);
  }
  Status host_task(const driver::HostTask& task, std::span<const Access> accesses,
                   std::uint64_t tag) noexcept override {
    if (!ledger_->inherited()) {
      if (task.run == nullptr) return Status(StatusCode::invalid_argument, "checked driver: host_task: no function");
      MOJO_RETURN_IF_ERROR(ledger_->check_accesses("host_task", accesses));
      MOJO_RETURN_IF_ERROR(check_tag("host_task", tag));
    }
    return inner_->host_task(task, accesses, tag);
  }
  Status record(driver::Event& event, std::uint64_t tag) noexcept override {
    if (!ledger_->inherited()) {
      MOJO_RETURN_IF_ERROR(ledger_->check_event("record", device_, &event));
      MOJO_RETURN_IF_ERROR(check_tag("record", tag));
    }
    return ForwardingQueue::record(event, tag);
  }
  Status wait(driver::Event& event, std::uint64_t tag) noexcept override {
    if (!ledger_->inherited()) {
      MOJO_RETURN_IF_ERROR(ledger_->check_event("wait", -1, &event));
      MOJO_RETURN_IF_ERROR(check_tag("wait", tag));
    }
    return ForwardingQueue::wait(event, tag);
  }
  Status wait_value(const std::uint64_t* address, std::uint64_t value, std::uint64_t tag) noexcept override {
    if (!ledger_->inherited()) {
      MOJO_RETURN_IF_ERROR(ledger_->check_value("wait_value", address));
      MOJO_RETURN_IF_ERROR(check_tag("wait_value", tag));
    }
    return inner_->wait_value(address, value, tag);
  }
  Status write_value(std::uint64_t* address, std::uint64_t value, std::uint64_t tag) noexcept override {
    if (!ledger_->inherited()) {
      MOJO_RETURN_IF_ERROR(ledger_->check_value("write_value", address));
      MOJO_RETURN_IF_ERROR(check_tag("write_value", tag));
    }
    return inner_->write_value(address, value, tag);
  }
  Status delay(std::uint64_t nanoseconds, std::uint64_t tag) noexcept override {
    if (!ledger_->inherited()) MOJO_RETURN_IF_ERROR(check_tag("delay", tag));
    return inner_->delay(nanoseconds, tag);
  }

 private:
  // Tags of a queue grow; 0 stands for "not numbered".
  Status check_tag(const char* call, std::uint64_t tag) noexcept {
    std::uint64_t last = last_tag_.load(std::memory_order_relaxed);
    do {
      if (tag == 0) return {};
      if (tag <= last) {
        return Status(StatusCode::invalid_argument, std::string("checked driver: ") + call + ": tag " +
                                                        std::to_string(tag) + " after " + std::to_string(last));
      }
    } while (!last_tag_.compare_exchange_weak(last, tag, std::memory_order_relaxed));
    return {};
  }

  const std::shared_ptr<Ledger> ledger_;
  const int device_;
  std::atomic<std::uint64_t> last_tag_{0};
};

class CheckedDevice final : public ForwardingDevice {
 public:
  CheckedDevice(std::unique_ptr<driver::Device> inner, std::shared_ptr<Ledger> ledger, int index, LeakReport on_leak)
      : ForwardingDevice(std::move(inner)), ledger_(std::move(ledger)), index_(index), on_leak_(std::move(on_leak)) {}
  ~CheckedDevice() override {
    if (ledger_->inherited()) return;
    const std::string leaks = ledger_->leaks(index_);
    for (std::size_t start = 0; start < leaks.size();) {
      const std::size_t end = leaks.find('\n', start);
      const std::string line = leaks.substr(start, end - start);
      if (on_leak_) {
        on_leak_(line);
      } else {
        base::report("checked driver", Status(StatusCode::internal, line));
      }
      start = end + 1;
    }
  }

  Status allocate(std::uint64_t bytes, DevicePtr& out) noexcept override {
    MOJO_RETURN_IF_ERROR(inner_->allocate(bytes, out));
    ledger_->add_segment(index_, out, bytes);
    return {};
  }
  Status free(DevicePtr ptr) noexcept override {
    if (!ledger_->inherited()) MOJO_RETURN_IF_ERROR(ledger_->take_segment("free", index_, ptr));
    return inner_->free(ptr);
  }
  Status allocate_pinned(std::uint64_t bytes, void*& out) noexcept override {
    MOJO_RETURN_IF_ERROR(inner_->allocate_pinned(bytes, out));
    ledger_->add_pinned(index_, out, bytes);
    return {};
  }
  Status free_pinned(void* ptr) noexcept override {
    if (!ledger_->inherited()) MOJO_RETURN_IF_ERROR(ledger_->take_pinned("free_pinned", ptr));
    return inner_->free_pinned(ptr);
  }
  Status allocate_value(std::uint64_t*& out) noexcept override {
    MOJO_RETURN_IF_ERROR(inner_->allocate_value(out));
    ledger_->add_value(index_, out);
    return {};
  }
  Status free_value(std::uint64_t* address) noexcept override {
    if (!ledger_->inherited()) MOJO_RETURN_IF_ERROR(ledger_->take_value("free_value", address));
    return inner_->free_value(address);
  }
  Status signal_value(std::uint64_t* address, std::uint64_t value) noexcept override {
    if (!ledger_->inherited()) MOJO_RETURN_IF_ERROR(ledger_->check_value("signal_value", address));
    return inner_->signal_value(address, value);
  }
  Status abandon_value(std::uint64_t* address, const Status& why) noexcept override {
    if (!ledger_->inherited()) MOJO_RETURN_IF_ERROR(ledger_->check_value("abandon_value", address));
    return inner_->abandon_value(address, why);
  }

 private:
  std::unique_ptr<driver::Queue> wrap_queue(std::unique_ptr<driver::Queue> queue) override {
    return std::make_unique<CheckedQueue>(std::move(queue), ledger_, index_);
  }
  std::unique_ptr<driver::Event> wrap_event(std::unique_ptr<driver::Event> event) override {
    return std::make_unique<CheckedEvent>(std::move(event), ledger_, index_);
  }
  std::unique_ptr<driver::Module> wrap_module(std::unique_ptr<driver::Module> module) override {
    return std::make_unique<CheckedModule>(std::move(module), ledger_, index_);
  }

  const std::shared_ptr<Ledger> ledger_;
  const int index_;
  const LeakReport on_leak_;
};

class CheckedDriver final : public ForwardingDriver {
 public:
  CheckedDriver(std::unique_ptr<driver::Driver> inner, LeakReport on_leak)
      : ForwardingDriver(std::move(inner)), ledger_(std::make_shared<Ledger>()), on_leak_(std::move(on_leak)) {}

 private:
  std::unique_ptr<driver::Device> wrap_device(int index, std::unique_ptr<driver::Device> device) override {
    return std::make_unique<CheckedDevice>(std::move(device), ledger_, index, on_leak_);
  }
  const std::shared_ptr<Ledger> ledger_;
  const LeakReport on_leak_;
};

}  // namespace

std::unique_ptr<driver::Driver> make_checked(std::unique_ptr<driver::Driver> inner, LeakReport on_leak) {
  return std::make_unique<CheckedDriver>(std::move(inner), std::move(on_leak));
}

}  // namespace mojo::layers
