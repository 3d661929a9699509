// Modules and launches, of every driver that has them.
#include <cmath>
#include <cstring>
#include <numeric>

#include "conformance/driver_under_test.h"
#include "jit/compile_cache.h"
#include "jit/dialect.h"

namespace mojo::conformance {
namespace {

// One for the program, so that each source is compiled once for all drivers.
jit::CompileCache& cache() {
  static jit::CompileCache compiled({.directory = ""});
  return compiled;
}

struct Buffer {
  std::uint64_t address, count;
};

class Launches : public Conformance {
 public:
  Launches() : device_(open()), queue_(queue(*device_)) {}

  Status compile(const std::string& source, const std::string& name, jit::CompiledImagePtr& image,
                 std::vector<std::string> options = {}) {
    driver::Compiler* compiler = nullptr;
    MOJO_RETURN_IF_ERROR(device_->compiler(compiler));
    const std::vector<std::string> entries{name};
    driver::CompileRequest request;
    request.source = source;
    request.entries = entries;
    request.headers = jit::dialect_headers();
    request.options = options;
    return cache().get(*compiler, request, image);
  }
  std::unique_ptr<driver::Kernel> kernel(const std::string& source, const std::string& name) {
    jit::CompiledImagePtr image;
    Status status = compile(source, name, image);
    std::unique_ptr<driver::Module> module;
    std::unique_ptr<driver::Kernel> out;
    if (status.ok()) status = device_->load_module(image->bytes, module);
    if (status.ok()) status = module->kernel(name, out);
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
    EXPECT_TRUE(queue_->synchronize().ok());
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

constexpr const char* scale_source = R"(
extern "C" MOJO_KERNEL void scale(mojo::Buffer<const float> x, mojo::Buffer<float> y, float a, unsigned n) {
  for (unsigned i = mojo::global_index(); i < n; i += mojo::global_size()) y[i] = a * x[i];
}
)";

INSTANTIATE_TEST_SUITE_P(Drivers, Launches, testing::ValuesIn(full_drivers()), name_of);

TEST_P(Launches, AStrideLoopCoversTheRangeWhateverTheGridAndBlock) {
  auto k = kernel(scale_source, "scale");
  const unsigned n = 1000;
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 1.0f);
  const Buffer x = buffer<float>(n), y = buffer<float>(n);
  upload(x, values);
  for (const auto& [grid, block] :
       std::vector<std::pair<unsigned, unsigned>>{{1, 1}, {1, 7}, {4, 256}, {3, 64}, {1000, 1}}) {
    upload(y, std::vector<float>(n, -1.0f));
    MOJO_OK(launch(*k, {grid}, {block}, 0, x, y, 2.0f, n));
    const auto got = download<float>(y);
    for (unsigned i = 0; i < n; ++i) ASSERT_EQ(got[i], 2.0f * values[i]) << i << ' ' << grid << ' ' << block;
  }
}

}  // namespace
}  // namespace mojo::conformance
