// What it is: what the tests of modules and launches share: compiling, launching, device memory that goes with the test.
// Ordering: a test has one queue; `download` waits for it. Threads: the test's own.
// Errors: `kernel` and `buffer` fail the test; `compile` and `launch` give the Status to look at.
#pragma once

#include <cstring>

#include "conformance/driver_under_test.h"
#include "jit/compile_cache.h"
#include "support/kernel_source.h"

namespace mojo::conformance {

// One for the program, so that each source is compiled once for all drivers.
inline jit::CompileCache& cache() {
  static jit::CompileCache compiled({.directory = ""});
  return compiled;
}

struct Buffer {
  std::uint64_t address, count;
};

// ThreadSanitizer takes milliseconds to make a stack.
#if defined(__SANITIZE_THREAD__)
inline constexpr unsigned largest_block = 128;
#else
inline constexpr unsigned largest_block = 1024;
#endif

class Launches : public Conformance {
 public:
  Launches() : device_(open()), queue_(queue(*device_)) {}

  Status compile(const std::string& source, const std::string& name, jit::CompiledImagePtr& image,
                 const std::vector<std::string>& options = {}) {
    return test::compile_source(*device_, cache(), source, name, image, options);
  }
  std::unique_ptr<driver::Kernel> kernel(const std::string& source, const std::string& name) {
    std::unique_ptr<driver::Kernel> out;
    const Status status = test::compile_kernel(*device_, cache(), source, name, out);
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }
  template <class... Arguments>
  Status launch(driver::Kernel& k, driver::Dim3 grid, driver::Dim3 block, std::uint32_t shared,
                Arguments... arguments) {
    const void* const pointers[] = {&arguments..., nullptr};
    const std::uint32_t sizes[] = {sizeof(arguments)..., 0};
    driver::Launch l;
    l.kernel = &k;
    l.grid = grid;
    l.block = block;
    l.shared_memory_bytes = shared;
    l.arguments = std::span(pointers, sizeof...(arguments));
    l.argument_sizes = std::span(sizes, sizeof...(arguments));
    return queue_->launch(l, tag());
  }
  template <class T>
  Buffer buffer(std::size_t count) {
    DevicePtr p;
    EXPECT_TRUE(device_->allocate(count * sizeof(T), p).ok());
    allocated_.push_back(p);
    return {p.address, count};
  }
  void TearDown() override {
    if (queue_ != nullptr) {
      EXPECT_TRUE(queue_->synchronize().ok());
    }
    for (DevicePtr p : allocated_) EXPECT_TRUE(device_->free(p).ok());
  }
  template <class T>
  void upload(Buffer to, const std::vector<T>& from) {
    driver::Copy copy;
    copy.kind = driver::CopyKind::host_to_device;
    copy.dst = {to.address};
    copy.host_src = from.data();
    copy.bytes = from.size() * sizeof(T);
    copy.host_pageable = true;
    EXPECT_TRUE(queue_->copy(copy, tag()).ok());
  }
  template <class T>
  std::vector<T> download(Buffer from) {
    std::vector<T> out(from.count);
    driver::Copy copy;
    copy.kind = driver::CopyKind::device_to_host;
    copy.src = {from.address};
    copy.host_dst = out.data();
    copy.bytes = out.size() * sizeof(T);
    copy.host_pageable = true;
    EXPECT_TRUE(queue_->copy(copy, tag()).ok());
    return out;
  }

 protected:
  std::unique_ptr<driver::Device> device_;
  std::unique_ptr<driver::Queue> queue_;
  std::vector<DevicePtr> allocated_;
};

inline constexpr const char* scale_source = R"(
extern "C" MOJO_KERNEL void scale(mojo::Buffer<const float> x, mojo::Buffer<float> y, float a, unsigned n) {
  for (unsigned i = mojo::global_index(); i < n; i += mojo::global_size()) y[i] = a * x[i];
}
)";

}  // namespace mojo::conformance
