// A vector-add of 2^26 floats from a compiled function, block 256, grid n / 256, against the same loop under OpenMP.
//
//   bench_vector_add [ROUNDS]    prints medians and the ratios of the rates; exit status 1 if `add` is below 0.9
//
// The two take turns, so that what else the machine does meets both. `add` handles one element a thread; `add_stride` is
// written as a stride loop, which GCC does not vectorise, and has no limit.
#include <mojo/mojo.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr const char* source = R"(
extern "C" MOJO_KERNEL void add(mojo::Buffer<const float> a, mojo::Buffer<const float> b, mojo::Buffer<float> c,
                                unsigned n) {
  const unsigned i = mojo::global_index();
  if (i < n) c[i] = a[i] + b[i];
}
extern "C" MOJO_KERNEL void add_stride(mojo::Buffer<const float> a, mojo::Buffer<const float> b, mojo::Buffer<float> c,
                                       unsigned n) {
  for (unsigned i = mojo::global_index(); i < n; i += mojo::global_size()) c[i] = a[i] + b[i];
}
)";

constexpr std::uint32_t n = 1U << 26, block = 256;

template <class Body>
double milliseconds(Body&& body) {
  const auto began = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
}

double median(std::vector<double> all) {
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
  return all[all.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  // OpenMP's threads otherwise spin for a while after each loop, on the cores that the device's workers need. It reads this
  // when it is loaded.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) {
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
  }
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 25;
  using View = mojo::Buffer<const float>;
  using Add = void(View, View, mojo::Buffer<float>, std::uint32_t);
  const mojo::DeviceContext ctx("host", 0);
  const mojo::DeviceStream s = ctx.create_stream();
  const auto add = ctx.compile_function<Add>(source, "add"),
             add_stride = ctx.compile_function<Add>(source, "add_stride");

  // The memory of the host device can be read and written here, so that both work on the same arrays.
  auto a = ctx.allocate<float>(n, s), b = ctx.allocate<float>(n, s), c = ctx.allocate<float>(n, s);
  s.synchronize();
  float *const pa = static_cast<float*>(a.data().opaque()), *const pb = static_cast<float*>(b.data().opaque()),
               *const pc = static_cast<float*>(c.data().opaque());
#pragma omp parallel for
  for (std::uint32_t i = 0; i < n; ++i) {
    pa[i] = static_cast<float>(i % 100);
    pb[i] = static_cast<float>(i % 7);
    pc[i] = 0;
  }
  const auto run = [&](const auto& function) {
    return milliseconds([&] {
      s.enqueue_function(function, {.grid = {n / block}, .block = {block}}, a, b, c, n);
      s.synchronize();
    });
  };
  std::vector<double> plain, one, stride;
  for (int round = 0; round < rounds; ++round) {
    plain.push_back(milliseconds([&] {
#pragma omp parallel for
      for (std::uint32_t i = 0; i < n; ++i) pc[i] = pa[i] + pb[i];
    }));
    one.push_back(run(add));
    stride.push_back(run(add_stride));
  }
  for (std::uint32_t i = 0; i < n; ++i) {
    if (pc[i] != pa[i] + pb[i]) {
      std::fprintf(stderr, "wrong at %u\n", i);
      return 1;
    }
  }
  const double base = median(plain), ratio = base / median(one);
  std::printf("OpenMP       %8.2f ms\n", base);
  std::printf("add          %8.2f ms, %.3f of OpenMP's rate (at least 0.9)%s\n", median(one), ratio,
              ratio < 0.9 ? "  BELOW" : "");
  std::printf("add_stride   %8.2f ms, %.3f of OpenMP's rate\n", median(stride), base / median(stride));
  return ratio < 0.9 ? 1 : 0;
}
