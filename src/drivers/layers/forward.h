// What it is: a Queue, Event, Module, Kernel, Compiler, Device and Driver that pass every call on; layers override the
//   calls they care about. A layer's events and kernels wrap those of the driver beneath, so each layer unwraps what it
//   is given by one level.
// Ordering: none added. Threads: any. Errors: passed on.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "driver/driver.h"

namespace mojo::layers {

class ForwardingEvent : public driver::Event {
 public:
  explicit ForwardingEvent(std::unique_ptr<driver::Event> inner) : inner_(std::move(inner)) {}
  Status query(bool& complete) noexcept override { return inner_->query(complete); }
  Status synchronize() noexcept override { return inner_->synchronize(); }
  Status elapsed_since(driver::Event& start, double& milliseconds) noexcept override {
    return inner_->elapsed_since(unwrap(start), milliseconds);
  }
  // The event beneath one that this layer has made.
  static driver::Event& unwrap(driver::Event& event) noexcept { return *static_cast<ForwardingEvent&>(event).inner_; }

 private:
  std::unique_ptr<driver::Event> inner_;
};

class ForwardingKernel : public driver::Kernel {
 public:
  explicit ForwardingKernel(std::unique_ptr<driver::Kernel> inner) : inner_(std::move(inner)) {}
  bool parameters(std::span<const ParameterDescription>& out) const noexcept override {
    return inner_->parameters(out);
  }
  // The kernel beneath one that this layer has made; null of null.
  static driver::Kernel* unwrap(driver::Kernel* kernel) noexcept {
    return kernel != nullptr ? static_cast<ForwardingKernel*>(kernel)->inner_.get() : nullptr;
  }

 private:
  std::unique_ptr<driver::Kernel> inner_;
};

class ForwardingModule : public driver::Module {
 public:
  explicit ForwardingModule(std::unique_ptr<driver::Module> inner) : inner_(std::move(inner)) {}
  Status kernel(std::string_view name, std::unique_ptr<driver::Kernel>& out) noexcept override {
    std::unique_ptr<driver::Kernel> found;
    MOJO_RETURN_IF_ERROR(inner_->kernel(name, found));
    out = wrap_kernel(std::move(found));
    return {};
  }

 protected:
  virtual std::unique_ptr<driver::Kernel> wrap_kernel(std::unique_ptr<driver::Kernel> kernel) {
    return std::make_unique<ForwardingKernel>(std::move(kernel));
  }

 private:
  std::unique_ptr<driver::Module> inner_;
};

class ForwardingCompiler : public driver::Compiler {
 public:
  explicit ForwardingCompiler(driver::Compiler& inner) : inner_(inner) {}
  Status identity(std::string& out) noexcept override { return inner_.identity(out); }
  Status target(std::string& out) noexcept override { return inner_.target(out); }
  const char* output_kind() const noexcept override { return inner_.output_kind(); }
  Status compile(const driver::CompileRequest& request, driver::CompileResult& out) noexcept override {
    return inner_.compile(request, out);
  }

 protected:
  driver::Compiler& inner_;
};

class ForwardingQueue : public driver::Queue {
 public:
  explicit ForwardingQueue(std::unique_ptr<driver::Queue> inner) : inner_(std::move(inner)) {}
  Status launch(const driver::Launch& launch, std::uint64_t tag) noexcept override {
    driver::Launch beneath = launch;
    beneath.kernel = ForwardingKernel::unwrap(launch.kernel);
    return inner_->launch(beneath, tag);
  }
  Status copy(const driver::Copy& copy, std::uint64_t tag) noexcept override { return inner_->copy(copy, tag); }
  Status fill(const driver::Fill& fill, std::uint64_t tag) noexcept override { return inner_->fill(fill, tag); }
  Status host_task(const driver::HostTask& task, std::span<const Access> accesses,
                   std::uint64_t tag) noexcept override {
    return inner_->host_task(task, accesses, tag);
  }
  Status record(driver::Event& event, std::uint64_t tag) noexcept override {
    return inner_->record(ForwardingEvent::unwrap(event), tag);
  }
  Status wait(driver::Event& event, std::uint64_t tag) noexcept override {
    return inner_->wait(ForwardingEvent::unwrap(event), tag);
  }
  Status wait_value(const std::uint64_t* address, std::uint64_t value, std::uint64_t tag) noexcept override {
    return inner_->wait_value(address, value, tag);
  }
  Status write_value(std::uint64_t* address, std::uint64_t value, std::uint64_t tag) noexcept override {
    return inner_->write_value(address, value, tag);
  }
  Status delay(std::uint64_t nanoseconds, std::uint64_t tag) noexcept override {
    return inner_->delay(nanoseconds, tag);
  }
  Status query(bool& complete) noexcept override { return inner_->query(complete); }
  Status synchronize() noexcept override { return inner_->synchronize(); }
  std::uint64_t completed_tag() const noexcept override { return inner_->completed_tag(); }
  Status begin_capture() noexcept override { return inner_->begin_capture(); }
  Status end_capture() noexcept override { return inner_->end_capture(); }
  void* native_handle() noexcept override { return inner_->native_handle(); }
  int priority() const noexcept override { return inner_->priority(); }

 protected:
  std::unique_ptr<driver::Queue> inner_;
};

class ForwardingDevice : public driver::Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<driver::Device> inner) : inner_(std::move(inner)) {}
  driver::Capabilities capabilities() const noexcept override { return inner_->capabilities(); }
  Status properties(driver::DeviceProperties& out) noexcept override { return inner_->properties(out); }
  driver::PriorityRange priority_range() const noexcept override { return inner_->priority_range(); }
  Status allocate(std::uint64_t bytes, DevicePtr& out) noexcept override { return inner_->allocate(bytes, out); }
  Status free(DevicePtr ptr) noexcept override { return inner_->free(ptr); }
  Status memory_info(driver::MemoryInfo& out) noexcept override { return inner_->memory_info(out); }
  Status allocate_pinned(std::uint64_t bytes, void*& out) noexcept override {
    return inner_->allocate_pinned(bytes, out);
  }
  Status free_pinned(void* ptr) noexcept override { return inner_->free_pinned(ptr); }
  Status allocate_value(std::uint64_t*& out) noexcept override { return inner_->allocate_value(out); }
  Status free_value(std::uint64_t* address) noexcept override { return inner_->free_value(address); }
  Status signal_value(std::uint64_t* address, std::uint64_t value) noexcept override {
    return inner_->signal_value(address, value);
  }
  Status abandon_value(std::uint64_t* address, const Status& why) noexcept override {
    return inner_->abandon_value(address, why);
  }
  Status create_queue(const driver::QueueOptions& options, std::unique_ptr<driver::Queue>& out) noexcept override {
    MOJO_RETURN_IF_ERROR(inner_->create_queue(options, out));
    out = wrap_queue(std::move(out));
    return {};
  }
  Status create_event(const driver::EventOptions& options, std::unique_ptr<driver::Event>& out) noexcept override {
    MOJO_RETURN_IF_ERROR(inner_->create_event(options, out));
    out = wrap_event(std::move(out));
    return {};
  }
  Status compiler(driver::Compiler*& out) noexcept override {
    std::lock_guard guard(compiler_mutex_);
    if (compiler_ == nullptr) {
      driver::Compiler* found = nullptr;
      MOJO_RETURN_IF_ERROR(inner_->compiler(found));
      compiler_ = wrap_compiler(*found);
    }
    out = compiler_.get();
    return {};
  }
  Status load_module(std::span<const std::byte> image, std::unique_ptr<driver::Module>& out) noexcept override {
    std::unique_ptr<driver::Module> loaded;
    MOJO_RETURN_IF_ERROR(inner_->load_module(image, loaded));
    out = wrap_module(std::move(loaded));
    return {};
  }
  Status enable_peer(driver::Device& other) noexcept override {
    return inner_->enable_peer(*static_cast<ForwardingDevice&>(other).inner_);
  }
  Status set_option(std::string_view name, std::string_view value) noexcept override {
    return inner_->set_option(name, value);
  }

 protected:
  virtual std::unique_ptr<driver::Queue> wrap_queue(std::unique_ptr<driver::Queue> queue) {
    return std::make_unique<ForwardingQueue>(std::move(queue));
  }
  virtual std::unique_ptr<driver::Event> wrap_event(std::unique_ptr<driver::Event> event) {
    return std::make_unique<ForwardingEvent>(std::move(event));
  }
  virtual std::unique_ptr<driver::Module> wrap_module(std::unique_ptr<driver::Module> module) {
    return std::make_unique<ForwardingModule>(std::move(module));
  }
  virtual std::unique_ptr<driver::Compiler> wrap_compiler(driver::Compiler& compiler) {
    return std::make_unique<ForwardingCompiler>(compiler);
  }
  std::unique_ptr<driver::Device> inner_;

 private:
  std::mutex compiler_mutex_;
  std::unique_ptr<driver::Compiler> compiler_;
};

class ForwardingDriver : public driver::Driver {
 public:
  explicit ForwardingDriver(std::unique_ptr<driver::Driver> inner) : inner_(std::move(inner)) {}
  const char* name() const noexcept override { return inner_->name(); }
  Status device_count(int& out) noexcept override { return inner_->device_count(out); }
  Status open(int index, std::unique_ptr<driver::Device>& out) noexcept override {
    MOJO_RETURN_IF_ERROR(inner_->open(index, out));
    out = wrap_device(index, std::move(out));
    return {};
  }
  void shut_down() noexcept override { inner_->shut_down(); }

 protected:
  virtual std::unique_ptr<driver::Device> wrap_device(int index, std::unique_ptr<driver::Device> device) = 0;
  std::unique_ptr<driver::Driver> inner_;
};

}  // namespace mojo::layers
