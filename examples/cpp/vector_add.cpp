// Adds two vectors on the device: memory, a function compiled at run time, a launch, the result back.
//
// Every call below but the last only puts work on the stream and returns. Work on one stream runs in the order of the
// calls, so nothing has to wait in between. The last copy's destination is ordinary host memory: that call waits.
#include <mojo/mojo.h>

#include <cstdint>
#include <cstdio>
#include <vector>

// Device code is text. `global_index` numbers this thread among all, `global_size` is how many there are: the loop is right
// for any grid and block.
constexpr const char* source = R"(
extern "C" MOJO_KERNEL void add(mojo::Buffer<const float> a, mojo::Buffer<const float> b, mojo::Buffer<float> sum,
                                unsigned n) {
  for (unsigned i = mojo::global_index(); i < n; i += mojo::global_size()) sum[i] = a[i] + b[i];
}
)";

int main() {
  constexpr std::uint32_t n = 1 << 20;
  const mojo::DeviceContext ctx(0);
  const mojo::DeviceStream stream = ctx.stream();  // the device's default stream
  std::printf("%s\n", ctx.name().c_str());

  // The signature is the C++ compiler's to check at each launch: wrong arguments do not compile.
  using Add = void(mojo::Buffer<const float>, mojo::Buffer<const float>, mojo::Buffer<float>, std::uint32_t);
  const auto add = ctx.compile_function<Add>(source, "add");

  const std::vector<float> a(n, 1.5F), b(n, 2.0F);
  std::vector<float> result(n);
  auto x = ctx.allocate<float>(n, stream), y = ctx.allocate<float>(n, stream), sum = ctx.allocate<float>(n, stream);
  stream.copy(x, a);  // destination first, as memcpy
  stream.copy(y, b);
  stream.enqueue_function(add, {.grid = {n / 256}, .block = {256}}, x, y, sum, n);
  stream.copy(result, sum);

  for (const float value : result) {
    if (value != 3.5F) return 1;
  }
  std::printf("%u sums are right\n", static_cast<unsigned>(n));
  return 0;
}  // x, y and sum are freed here, in the order of their stream
