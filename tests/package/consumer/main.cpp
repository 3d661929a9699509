// The calls of the C++ API as they are spelled, all of them in one program.
#include <mojo/mojo.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#define CHECK(condition)                                           \
  do {                                                             \
    if (!(condition)) {                                            \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
      std::exit(1);                                                \
    }                                                              \
  } while (false)

constexpr const char* source = R"(
extern "C" MOJO_KERNEL void scale(mojo::Buffer<const float> x, mojo::Buffer<float> y, float a, unsigned n) {
  for (unsigned i = mojo::global_index(); i < n; i += mojo::global_size()) y[i] = a * x[i];
}
)";

// clang-format off
int main() {
  const std::uint32_t n = 1000, blocks = (n + 255) / 256;
  int called = 0;
  void* user = &called;

  mojo::DeviceContext ctx(0);
  mojo::DeviceStream s = ctx.create_stream({.priority = -1});
  mojo::DeviceStream t = ctx.create_stream();
  mojo::DeviceEvent e = ctx.create_event({.timing = true});
  mojo::DeviceEvent start = ctx.create_event({.timing = true}), end = ctx.create_event({.timing = true});
  auto x = ctx.allocate<float>(n, s);
  auto y = ctx.allocate<float>(n, s);
  auto h = ctx.allocate_pinned<float>(n);
  for (float& value : h) value = 3.0f;
  s.record_event(start);
  x.record_stream(t);
  s.copy(x, h); s.copy(h, x); s.fill(y, 0.0f);
  auto f = ctx.compile_function<void(mojo::Buffer<const float>, mojo::Buffer<float>, float, std::uint32_t)>(source, "scale");
  s.enqueue_function(f, {.grid = {blocks}, .block = {256}, .shared_memory_bytes = 0}, x, y, 2.0f, n);
  t.enqueue_wait_for(ctx.create_event());  // never recorded: does nothing
  s.record_event(e); t.enqueue_wait_for(e);
  s.enqueue_host_func(+[](void* p) { ++*static_cast<int*>(p); }, user);
  s.enqueue_host_func([held = std::make_unique<int>(1), &called] { called += *held; });
  mojo::CompletionFlag flag(ctx); s.wait_for_host_value(flag, 7); flag.signal(7);
  s.record_event(end);
  s.synchronize(); e.synchronize();
  CHECK(s.query() && e.query() && called == 2);
  CHECK(start.elapsed_ms(end) > 0);
  void* native = s.native_handle(); std::uint64_t id = s.id();
  CHECK(native != nullptr && id == 1 && ctx.stream().id() == 0);
  std::vector<float> result(n);
  s.copy(result, y);
  for (const float value : result) CHECK(value == 6.0f);

  // The untyped launch: a buffer is its address and its number of elements.
  struct { std::uint64_t address, count; } in{x.data().address, n}, out{y.data().address, n};
  const float a = 3.0f;
  const std::array<const void*, 4> arguments{&in, &out, &a, &n};
  const std::array<std::uint32_t, 4> sizes{16, 16, 4, 4};
  CHECK(!s.enqueue(f, {.grid = {blocks}, .block = {256}}, arguments, sizes));
  const std::optional<std::string> error = s.enqueue(f, {.grid = {0}, .block = {256}}, arguments, sizes);
  CHECK(error && !error->empty());
  s.copy(result, y);
  for (const float value : result) CHECK(value == 9.0f);

  CHECK(mojo::DeviceContext("host", 0) == ctx && mojo::DeviceContext::count() >= 1);
  const auto [free, total] = ctx.memory_info();
  CHECK(!ctx.name().empty() && x.size() == n && x.view().data() == x.data() && free <= total);
  std::printf("all right on %s\n", ctx.name().c_str());
  return 0;
}
// clang-format on
