// In the steady state record, wait, query and launches allocate nothing, on no thread: this program counts operator new.
#include <atomic>
#include <cstdlib>
#include <new>

#include "support/host_fixture.h"

namespace {

std::atomic<std::size_t> allocations{0};

}  // namespace

// Not inlined, or the compiler pairs malloc with delete and warns.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto a = static_cast<std::size_t>(alignment);
  if (void* p = std::aligned_alloc(a, (bytes + a - 1) / a * a)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace mojo::test {
namespace {

using SteadyState = HostRuntime;

// How often `round` allocates once it has been run often enough for every pool to have grown.
template <class Round>
std::size_t allocations_of(Round&& round) {
  for (int i = 0; i < 50; ++i) round();
  const std::size_t before = allocations;
  for (int i = 0; i < 50; ++i) round();
  return allocations - before;
}

// Runs `queue` while `held` takes nothing, so that as much is in flight as ever can be and the pools grow to that.
template <class Queue>
void fill_pools(DeviceStream held, Queue&& queue) {
  const CompletionFlag flag{DeviceContext(held.device_index())};
  held.wait_for_host_value(flag, 1);
  for (int i = 0; i < 4; ++i) queue();
  flag.signal(1);
  DeviceContext(held.device_index()).synchronize();
}

TEST_F(SteadyState, RecordWaitAndQuery) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  DeviceEvent e = ctx.create_event(), timed = ctx.create_event({.timing = true});
  const auto queue = [&] {
    for (int i = 0; i < 20; ++i) {
      s.record_event(e);
      t.enqueue_wait_for(e);
      t.record_event(timed);
      s.enqueue_wait_for(timed);
      t.enqueue_wait_for(s);
      static_cast<void>(e.query());
      static_cast<void>(s.query());
    }
  };
  fill_pools(s, queue);
  EXPECT_EQ(allocations_of([&] {
              queue();
              s.synchronize();
              e.synchronize();
              t.synchronize();
            }),
            0U);
}

TEST_F(SteadyState, FillsCopiesValuesAndMemory) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  auto x = ctx.allocate<int>(64, s), y = ctx.allocate<int>(64, s);
  auto h = ctx.allocate_pinned<int>(64);
  const CompletionFlag flag(ctx);
  EXPECT_EQ(allocations_of([&] {
              flag.signal(0);
              s.fill(x, 3);
              s.copy(y, x);
              s.copy(h, y);
              s.wait_for_host_value(flag, 1);
              flag.signal(1);
              auto z = ctx.allocate<int>(100, s);
              z.record_stream(t);
              s.synchronize();
            }),
            0U);
}

TEST_F(SteadyState, LaunchesOfUpTo8SmallArguments) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  auto x = ctx.allocate<float>(64, s);
  constexpr const char* source = R"(
extern "C" MOJO_KERNEL void nothing() {}
extern "C" MOJO_KERNEL void eight(mojo::Buffer<float> x, mojo::Buffer<const float> y, mojo::Buffer<const float> z,
                                  float a, double b, unsigned c, long d, mojo::Buffer<const float> e) {
  if (mojo::global_index() == 0) x[0] = a + float(b) + float(c) + float(d);
}
)";
  using View = Buffer<const float>;
  const auto nothing = ctx.compile_function<void()>(source, "nothing");
  const auto eight =
      ctx.compile_function<void(Buffer<float>, View, View, float, double, std::uint32_t, std::int64_t, View)>(source,
                                                                                                              "eight");
  const auto queue = [&] {
    for (int i = 0; i < 20; ++i) {
      s.enqueue_function(nothing, {.grid = {1}, .block = {1}});
      s.enqueue_function(eight, {.grid = {4}, .block = {16}}, x, x, x, 1.0F, 2.0, 3U, std::int64_t{4}, x);
    }
  };
  fill_pools(s, queue);
  EXPECT_EQ(allocations_of([&] {
              queue();
              s.synchronize();
            }),
            0U);
  std::vector<float> back(64);
  s.copy(back, x);
  EXPECT_EQ(back[0], 10.0F);
}

}  // namespace
}  // namespace mojo::test
