// A vector-add of 2^26 floats from a compiled function (block 256, grid n / 256) against the same loop under OpenMP.
//
//   g++ -std=c++20 -O3 -march=native -fopenmp -Iinclude benchmarks/vector_add.cpp <the runtime's static libraries>
//
// Prints the least time of each, and their ratio; the two take turns, so that what else the machine does meets both.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "drivers/host/host_driver.h"
#include "jit/compile_cache.h"
#include "jit/dialect.h"

namespace {

using namespace mojo;

constexpr const char* source = R"(
extern "C" MOJO_KERNEL void add(mojo::Buffer<const float> a, mojo::Buffer<const float> b, mojo::Buffer<float> c, unsigned n) {
  const unsigned i = mojo::global_index();
  if (i < n) c[i] = a[i] + b[i];
}
extern "C" MOJO_KERNEL void add_stride(mojo::Buffer<const float> a, mojo::Buffer<const float> b, mojo::Buffer<float> c, unsigned n) {
  for (unsigned i = mojo::global_index(); i < n; i += mojo::global_size()) c[i] = a[i] + b[i];
}
)";

void check(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

struct Buffer {
  std::uint64_t address, count;
};

double milliseconds(auto&& body) {
  const auto began = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "add";
  const unsigned n = 1u << 26;
  auto driver = host::make_host_driver({});
  std::unique_ptr<driver::Device> device;
  check(driver->open(0, device));
  std::unique_ptr<driver::Queue> queue;
  check(device->create_queue({}, queue));

  driver::Compiler* compiler = nullptr;
  check(device->compiler(compiler));
  jit::CompileCache cache({});
  const std::vector<std::string> entries{name};
  driver::CompileRequest request;
  request.source = source;
  request.entries = entries;
  request.headers = jit::dialect_headers();
  jit::CompiledImagePtr image;
  std::printf("compile: %.0f ms\n", milliseconds([&] { check(cache.get(*compiler, request, image)); }));
  std::unique_ptr<driver::Module> module;
  std::unique_ptr<driver::Kernel> kernel;
  check(device->load_module(image->bytes, module));
  check(module->kernel(name, kernel));

  float* data[3];
  Buffer buffers[3];
  for (int k = 0; k < 3; ++k) {
    DevicePtr p;
    check(device->allocate(std::uint64_t{n} * sizeof(float), p));
    data[k] = static_cast<float*>(p.opaque());
    buffers[k] = {p.address, n};
#pragma omp parallel for
    for (unsigned i = 0; i < n; ++i) data[k][i] = static_cast<float>(i % 100);
  }
  const void* arguments[] = {&buffers[0], &buffers[1], &buffers[2], &n};
  const std::uint32_t sizes[] = {16, 16, 16, 4};
  driver::Launch launch;
  launch.kernel = kernel.get();
  launch.grid = {n / 256};
  launch.block = {256};
  launch.arguments = arguments;
  launch.argument_sizes = sizes;

  const float *a = data[0], *b = data[1];
  float* c = data[2];
  double plain = 1e9, ours = 1e9;
  for (int round = 0; round < 25; ++round) {
    plain = std::min(plain, milliseconds([&] {
#pragma omp parallel for
                       for (unsigned i = 0; i < n; ++i) c[i] = a[i] + b[i];
                     }));
    ours = std::min(ours, milliseconds([&] {
                      check(queue->launch(launch, 0));
                      check(queue->synchronize());
                    }));
  }
  for (unsigned i = 0; i < n; ++i) {
    if (c[i] != a[i] + b[i]) {
      std::fprintf(stderr, "wrong at %u\n", i);
      return 1;
    }
  }
  std::printf("OpenMP %.2f ms, %s %.2f ms, ratio %.3f\n", plain, name.c_str(), ours, plain / ours);
}
