// What it is: a test fixture that compiles a kernel written in the dialect and runs it on the host device.
// Ordering: `run` waits for the kernel. Threads: the test's own. Errors: `run` fails the test.
#pragma once

#include <string>
#include <vector>

#include "conformance/driver_under_test.h"
#include "jit/compile_cache.h"
#include "support/kernel_source.h"

namespace mojo::kernels {

// Runs one kernel over arrays of the host's memory, which is the device's too.
class Dialect : public testing::Test {
 public:
  Dialect() : driver_(host::make_host_driver(conformance::host_options(4))) {
    EXPECT_TRUE(driver_->open(0, device_).ok());
    EXPECT_TRUE(device_->create_queue({}, queue_).ok());
  }
  Status compile(const std::string& source, jit::CompiledImagePtr& image) {
    return test::compile_source(*device_, cache(), source, "f", image, options());
  }
  template <class... Arguments>
  void run(const std::string& source, driver::Dim3 grid, driver::Dim3 block, Arguments... arguments) {
    std::unique_ptr<driver::Kernel> kernel;
    MOJO_OK(test::compile_kernel(*device_, cache(), source, "f", kernel, options()));
    const void* pointers[] = {&arguments...};
    const std::uint32_t sizes[] = {sizeof(arguments)...};
    driver::Launch launch;
    launch.kernel = kernel.get();
    launch.grid = grid;
    launch.block = block;
    launch.arguments = pointers;
    launch.argument_sizes = sizes;
    MOJO_OK(queue_->launch(launch, 0));
    MOJO_OK(queue_->synchronize());
  }
  struct Buffer {
    void* pointer;
    std::uint64_t count;
  };
  template <class T>
  static Buffer view(std::vector<T>& v) {
    return {v.data(), v.size()};
  }

 private:
  static jit::CompileCache& cache() {
    static jit::CompileCache compiled({.directory = ""});
    return compiled;
  }
  // The dialect has no warnings of its own.
  static const std::vector<std::string>& options() {
    static const std::vector<std::string> all{"-Wall", "-Wextra", "-Werror", "-Wno-unused-variable"};
    return all;
  }

 private:
  std::unique_ptr<driver::Driver> driver_;
  std::unique_ptr<driver::Device> device_;
  std::unique_ptr<driver::Queue> queue_;
};

}  // namespace mojo::kernels
