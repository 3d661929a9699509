#include "drivers/layers/hooked.h"

#include <atomic>

#include "drivers/layers/forward.h"

namespace mojo::layers {
namespace {

template <class Call>
Status hooked(CallHook& hook, const CallInfo& info, Call&& call) noexcept {
  Status status = hook.before(info);
  if (status.ok()) status = call();
  hook.after(info, status);
  return status;
}

std::uint64_t identity(const void* object) noexcept { return reinterpret_cast<std::uintptr_t>(object); }

class HookedEvent final : public ForwardingEvent {
 public:
  HookedEvent(std::unique_ptr<driver::Event> inner, std::shared_ptr<CallHook> hook, int device)
      : ForwardingEvent(std::move(inner)), hook_(std::move(hook)), device_(device) {}
  Status query(bool& complete) noexcept override {
    return hooked(*hook_, info("event_query"), [&] { return ForwardingEvent::query(complete); });
  }
  Status synchronize() noexcept override {
    return hooked(*hook_, info("event_synchronize"), [&] { return ForwardingEvent::synchronize(); });
  }
  Status elapsed_since(driver::Event& start, double& milliseconds) noexcept override {
    return hooked(*hook_, info("elapsed_since"), [&] { return ForwardingEvent::elapsed_since(start, milliseconds); });
  }

 private:
  CallInfo info(const char* name) const noexcept { return {name, device_, -1, 0, 0, identity(this)}; }
  const std::shared_ptr<CallHook> hook_;
  const int device_;
};

class HookedModule final : public ForwardingModule {
 public:
  HookedModule(std::unique_ptr<driver::Module> inner, std::shared_ptr<CallHook> hook, int device)
      : ForwardingModule(std::move(inner)), hook_(std::move(hook)), device_(device) {}
  Status kernel(std::string_view name, std::unique_ptr<driver::Kernel>& out) noexcept override {
    return hooked(*hook_, {.name = "kernel", .device = device_}, [&] { return ForwardingModule::kernel(name, out); });
  }

 private:
  const std::shared_ptr<CallHook> hook_;
  const int device_;
};

class HookedCompiler final : public ForwardingCompiler {
 public:
  HookedCompiler(driver::Compiler& inner, std::shared_ptr<CallHook> hook, int device)
      : ForwardingCompiler(inner), hook_(std::move(hook)), device_(device) {}
  Status identity(std::string& out) noexcept override {
    return hooked(*hook_, info("compiler_identity", 0), [&] { return inner_.identity(out); });
  }
  Status compile(const driver::CompileRequest& request, driver::CompileResult& out) noexcept override {
    return hooked(*hook_, info("compile", request.source.size()), [&] { return inner_.compile(request, out); });
  }

 private:
  CallInfo info(const char* name, std::uint64_t bytes) const noexcept { return {name, device_, -1, 0, bytes, 0}; }
  const std::shared_ptr<CallHook> hook_;
  const int device_;
};

class HookedQueue final : public ForwardingQueue {
 public:
  HookedQueue(std::unique_ptr<driver::Queue> inner, std::shared_ptr<CallHook> hook, int device, int number)
      : ForwardingQueue(std::move(inner)), hook_(std::move(hook)), device_(device), number_(number) {}

  Status launch(const driver::Launch& launch, std::uint64_t tag) noexcept override {
    return hooked(*hook_, info("launch", tag), [&] { return ForwardingQueue::launch(launch, tag); });
  }
  Status copy(const driver::Copy& copy, std::uint64_t tag) noexcept override {
    const std::uint64_t to = copy.kind == driver::CopyKind::device_to_host ? identity(copy.host_dst) : copy.dst.address;
    return hooked(*hook_, info("copy", tag, copy.bytes, to), [&] { return inner_->copy(copy, tag); });
  }
  Status fill(const driver::Fill& fill, std::uint64_t tag) noexcept override {
    return hooked(*hook_, info("fill", tag, fill.bytes, fill.dst.address), [&] { return inner_->fill(fill, tag); });
  }
  Status host_task(const driver::HostTask& task, std::span<const Access> accesses,
                   std::uint64_t tag) noexcept override {
    return hooked(*hook_, info("host_task", tag), [&] { return inner_->host_task(task, accesses, tag); });
  }
  Status record(driver::Event& event, std::uint64_t tag) noexcept override {
    return hooked(*hook_, info("record", tag, 0, identity(&event)),
                  [&] { return ForwardingQueue::record(event, tag); });
  }
  Status wait(driver::Event& event, std::uint64_t tag) noexcept override {
    return hooked(*hook_, info("wait", tag, 0, identity(&event)), [&] { return ForwardingQueue::wait(event, tag); });
  }
  Status wait_value(const std::uint64_t* address, std::uint64_t value, std::uint64_t tag) noexcept override {
    return hooked(*hook_, info("wait_value", tag, 0, identity(address)),
                  [&] { return inner_->wait_value(address, value, tag); });
  }
  Status write_value(std::uint64_t* address, std::uint64_t value, std::uint64_t tag) noexcept override {
    return hooked(*hook_, info("write_value", tag, 0, identity(address)),
                  [&] { return inner_->write_value(address, value, tag); });
  }
  Status delay(std::uint64_t nanoseconds, std::uint64_t tag) noexcept override {
    return hooked(*hook_, info("delay", tag), [&] { return inner_->delay(nanoseconds, tag); });
  }
  Status query(bool& complete) noexcept override {
    return hooked(*hook_, info("query"), [&] { return inner_->query(complete); });
  }
  Status synchronize() noexcept override {
    return hooked(*hook_, info("synchronize"), [&] { return inner_->synchronize(); });
  }
  Status begin_capture() noexcept override {
    return hooked(*hook_, info("begin_capture"), [&] { return inner_->begin_capture(); });
  }
  Status end_capture() noexcept override {
    return hooked(*hook_, info("end_capture"), [&] { return inner_->end_capture(); });
  }

 private:
  CallInfo info(const char* name, std::uint64_t tag = 0, std::uint64_t bytes = 0,
                std::uint64_t address = 0) const noexcept {
    return {name, device_, number_, tag, bytes, address};
  }
  const std::shared_ptr<CallHook> hook_;
  const int device_, number_;
};

class HookedDevice final : public ForwardingDevice {
 public:
  HookedDevice(std::unique_ptr<driver::Device> inner, std::shared_ptr<CallHook> hook, int index)
      : ForwardingDevice(std::move(inner)), hook_(std::move(hook)), index_(index) {}

  Status properties(driver::DeviceProperties& out) noexcept override {
    return hooked(*hook_, info("properties"), [&] { return inner_->properties(out); });
  }
  Status allocate(std::uint64_t bytes, DevicePtr& out) noexcept override {
    return hooked(*hook_, info("allocate", bytes), [&] { return inner_->allocate(bytes, out); });
  }
  Status memory_info(driver::MemoryInfo& out) noexcept override {
    return hooked(*hook_, info("memory_info"), [&] { return inner_->memory_info(out); });
  }
  Status allocate_pinned(std::uint64_t bytes, void*& out) noexcept override {
    return hooked(*hook_, info("allocate_pinned", bytes), [&] { return inner_->allocate_pinned(bytes, out); });
  }
  Status allocate_value(std::uint64_t*& out) noexcept override {
    return hooked(*hook_, info("allocate_value"), [&] { return inner_->allocate_value(out); });
  }
  Status signal_value(std::uint64_t* address, std::uint64_t value) noexcept override {
    return hooked(*hook_, info("signal_value", 0, identity(address)),
                  [&] { return inner_->signal_value(address, value); });
  }
  Status create_queue(const driver::QueueOptions& options, std::unique_ptr<driver::Queue>& out) noexcept override {
    return hooked(*hook_, info("create_queue"), [&] { return ForwardingDevice::create_queue(options, out); });
  }
  Status create_event(const driver::EventOptions& options, std::unique_ptr<driver::Event>& out) noexcept override {
    return hooked(*hook_, info("create_event"), [&] { return ForwardingDevice::create_event(options, out); });
  }
  Status compiler(driver::Compiler*& out) noexcept override {
    return hooked(*hook_, info("compiler"), [&] { return ForwardingDevice::compiler(out); });
  }
  Status load_module(std::span<const std::byte> image, std::unique_ptr<driver::Module>& out) noexcept override {
    return hooked(*hook_, info("load_module", image.size()), [&] { return ForwardingDevice::load_module(image, out); });
  }
  Status enable_peer(driver::Device& other) noexcept override {
    return hooked(*hook_, info("enable_peer"), [&] { return ForwardingDevice::enable_peer(other); });
  }
  Status set_option(std::string_view name, std::string_view value) noexcept override {
    return hooked(*hook_, info("set_option"), [&] { return inner_->set_option(name, value); });
  }

 private:
  std::unique_ptr<driver::Queue> wrap_queue(std::unique_ptr<driver::Queue> queue) override {
    return std::make_unique<HookedQueue>(std::move(queue), hook_, index_, queues_.fetch_add(1));
  }
  std::unique_ptr<driver::Event> wrap_event(std::unique_ptr<driver::Event> event) override {
    return std::make_unique<HookedEvent>(std::move(event), hook_, index_);
  }
  std::unique_ptr<driver::Module> wrap_module(std::unique_ptr<driver::Module> module) override {
    return std::make_unique<HookedModule>(std::move(module), hook_, index_);
  }
  std::unique_ptr<driver::Compiler> wrap_compiler(driver::Compiler& compiler) override {
    return std::make_unique<HookedCompiler>(compiler, hook_, index_);
  }
  CallInfo info(const char* name, std::uint64_t bytes = 0, std::uint64_t address = 0) const noexcept {
    return {name, index_, -1, 0, bytes, address};
  }

  const std::shared_ptr<CallHook> hook_;
  const int index_;
  std::atomic<int> queues_{0};
};

class HookedDriver final : public ForwardingDriver {
 public:
  HookedDriver(std::unique_ptr<driver::Driver> inner, std::shared_ptr<CallHook> hook)
      : ForwardingDriver(std::move(inner)), hook_(std::move(hook)) {}
  Status device_count(int& out) noexcept override {
    return hooked(*hook_, {.name = "device_count"}, [&] { return inner_->device_count(out); });
  }
  Status open(int index, std::unique_ptr<driver::Device>& out) noexcept override {
    return hooked(*hook_, {.name = "open", .device = index}, [&] { return ForwardingDriver::open(index, out); });
  }

 private:
  std::unique_ptr<driver::Device> wrap_device(int index, std::unique_ptr<driver::Device> device) override {
    return std::make_unique<HookedDevice>(std::move(device), hook_, index);
  }
  const std::shared_ptr<CallHook> hook_;
};

}  // namespace

std::unique_ptr<driver::Driver> make_hooked(std::unique_ptr<driver::Driver> inner, std::shared_ptr<CallHook> hook) {
  return std::make_unique<HookedDriver>(std::move(inner), std::move(hook));
}

}  // namespace mojo::layers
