// Buffers, copies and fills of the typed API on the host device.
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "support/host_fixture.h"
#include "support/refusal.h"

namespace mojo::test {
namespace {

using Buffers = HostRuntime;

std::vector<float> counting(std::size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

TEST_F(Buffers, EveryDirection) {  // D-08
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  auto x = ctx.allocate<float>(1000, s), y = ctx.allocate<float>(1000, s);
  auto pinned = ctx.allocate_pinned<float>(1000);
  EXPECT_EQ(x.size(), 1000U);
  EXPECT_EQ(x.size_bytes(), 4000U);
  EXPECT_EQ(pinned.size(), 1000U);
  std::iota(pinned.begin(), pinned.end(), 0.0F);

  Gate gate(s);
  const std::uint64_t waits = host_waits();
  std::vector<float> values = counting(1000);
  s.copy(x, pinned);                                // pinned to device: queued
  s.copy(y, x);                                     // within a device
  s.copy(y.part(0, 2), std::span(values).last(2));  // pageable to device: staged
  values.assign(1000, -1.0F);                       // the caller's memory is free again
  s.fill(x.part(10, 5), 7.5F);
  s.copy(pinned, y);  // device to pinned: queued
  EXPECT_EQ(host_waits(), waits);
  EXPECT_FALSE(s.query());
  gate.open();
  s.synchronize();
  EXPECT_EQ(pinned[0], 998.0F);
  EXPECT_EQ(pinned[1], 999.0F);
  EXPECT_EQ(pinned[2], 2.0F);

  s.copy(values, x);  // device to pageable: blocks
  EXPECT_EQ(host_waits(), waits + 2);
  EXPECT_EQ(values[9], 9.0F);
  EXPECT_EQ(values[10], 7.5F);
  EXPECT_EQ(values[14], 7.5F);
  EXPECT_EQ(values[15], 15.0F);
  std::array<float, 3> three{};
  const DeviceBuffer<float>& constant = x;
  s.copy(three, constant.part(14, 3));
  EXPECT_EQ(three, (std::array{7.5F, 15.0F, 16.0F}));
}

TEST_F(Buffers, BetweenDevices) {  // D-08, C-12
  const DeviceContext here(0), there(1);
  const DeviceStream s = here.create_stream(), t = there.create_stream();
  auto x = here.allocate<int>(3, s), back = here.allocate<int>(3, s);
  auto y = there.allocate<int>(3, t);
  s.copy(x, std::array{1, 2, 3});
  t.enqueue_wait_for(s);
  t.copy(y, x);  // pulls
  x.record_stream(t);
  t.copy(back, y);  // pushes
  back.record_stream(t);
  s.enqueue_wait_for(t);
  std::vector<int> values(3);
  s.copy(values, back);
  EXPECT_EQ(values, (std::vector{1, 2, 3}));
}

TEST_F(Buffers, SizesAreChecked) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  auto x = ctx.allocate<int>(4, s), y = ctx.allocate<int>(5, s);
  std::vector<int> three(3);
  const auto text = refusal_of([&] { s.copy(x, y); }, StatusCode::invalid_argument);
  EXPECT_TRUE(mentions(text, "the destination has 4 elements, the source 5")) << text;
  refusal_of([&] { s.copy(x, three); }, StatusCode::invalid_argument);
  refusal_of([&] { s.copy(three, x); }, StatusCode::invalid_argument);
  refusal_of([&] { static_cast<void>(x.part(1, 4)); }, StatusCode::out_of_range);
  refusal_of([&] { static_cast<void>(x.part(5, 0)); }, StatusCode::out_of_range);
  refusal_of([&] { static_cast<void>(x.part(-1, 1)); }, StatusCode::out_of_range);
  refusal_of([&] { static_cast<void>(x.part(1, std::numeric_limits<std::uint64_t>::max())); },
             StatusCode::out_of_range);
  EXPECT_EQ(x.part(4, 0).size(), 0U);
  const auto overlap = refusal_of([&] { s.copy(y.part(1, 4), y.part(0, 4)); }, StatusCode::invalid_argument);
  EXPECT_TRUE(mentions(overlap, "overlap")) << overlap;
  s.copy(y.part(0, 2), y.part(2, 2));
  EXPECT_EQ(s.position(), 1U);  // what was refused took no place in the queue
  s.synchronize();
}

TEST_F(Buffers, ANegativeOrHugeSizeIsOneClearError) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.stream();
  auto text = refusal_of([&] { ctx.allocate<float>(-1, s); }, StatusCode::invalid_argument);
  EXPECT_TRUE(mentions(text, "allocate: -1 elements")) << text;
  text = refusal_of([&] { ctx.allocate_pinned<float>(-5); }, StatusCode::invalid_argument);
  EXPECT_TRUE(mentions(text, "allocate_pinned: -5 elements")) << text;
  text = refusal_of([&] { ctx.allocate<double>(std::uint64_t{1} << 61, s); }, StatusCode::out_of_range);
  EXPECT_TRUE(mentions(text, "more than can be addressed")) << text;
  refusal_of([&] { ctx.allocate<char>(std::numeric_limits<std::uint64_t>::max(), s); }, StatusCode::out_of_range);
  refusal_of([&] { ctx.allocate_pinned<char>(std::numeric_limits<std::uint64_t>::max()); }, StatusCode::out_of_range);
  EXPECT_THROW(ctx.allocate<char>(std::uint64_t{1} << 50, s), OutOfMemory);
  EXPECT_EQ(ctx.memory_statistics().allocated_bytes[0].current, 0);
  auto works = ctx.allocate<char>(16, s);
  EXPECT_TRUE(works.data());
}

TEST_F(Buffers, NothingIsFineAsASize) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.stream();
  auto x = ctx.allocate<float>(0, s);
  auto h = ctx.allocate_pinned<float>(0);
  EXPECT_TRUE(x.empty());
  EXPECT_TRUE(h.empty());
  s.copy(x, h);
  s.copy(h, x);
  s.copy(x, x);
  s.fill(x, 1.0F);
  s.synchronize();
}

TEST_F(Buffers, AnotherDevicesBufferIsRefused) {
  const DeviceContext ctx(0), other(1);
  const DeviceStream s = ctx.create_stream(), t = other.create_stream();
  auto y = other.allocate<float>(4, t), z = other.allocate<float>(4, t);
  auto h = ctx.allocate_pinned<float>(4);
  for (const auto& call : std::vector<std::function<void()>>{[&] { s.copy(y, h); }, [&] { s.copy(h, y); },
                                                             [&] { s.fill(y, 0.0F); }, [&] { s.copy(y, z); }}) {
    const auto text = refusal_of(call, StatusCode::invalid_argument);
    EXPECT_TRUE(mentions(text, "a buffer of device 1 on a stream of device 0")) << text;
  }
  refusal_of([&] { other.allocate<float>(4, s); }, StatusCode::invalid_argument);
  auto moved = std::move(y);
  EXPECT_EQ(y.size(), 0U);  // NOLINT(bugprone-use-after-move): empty afterwards, as documented
  EXPECT_EQ(moved.size(), 4U);
  EXPECT_EQ(s.position(), 0U);
}

TEST_F(Buffers, FillsOfEveryWidth) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const auto round = [&]<class T>(T value) {
    auto x = ctx.allocate<T>(17, s);
    s.fill(x, value);
    std::vector<T> back(17);
    s.copy(back, x);
    for (const T v : back) EXPECT_EQ(v, value);
  };
  round(std::int8_t{-3});
  round(std::uint16_t{65530});
  round(-1.5F);
  round(2.25);
  round(std::int64_t{-7});
}

TEST_F(Buffers, MemoryIsFreedInTheOrderOfItsStream) {  // M-01
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  std::vector<int> back(64);
  Gate gate(s);
  DevicePtr first;
  {
    auto x = ctx.allocate<int>(64, s);
    first = x.data();
    s.fill(x, 5);
  }
  auto y = ctx.allocate<int>(64, s);  // the same memory at once: later work of the same stream
  EXPECT_EQ(y.data(), first);
  s.fill(y, 6);
  gate.open();
  s.copy(back, y);
  EXPECT_EQ(back[63], 6);
}

TEST_F(Buffers, RecordStreamKeepsMemoryFromReuse) {  // M-02
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  Gate gate(t);
  auto x = ctx.allocate<int>(64, s);
  const DevicePtr first = x.data();
  x.record_stream(t);
  queue(t, [] {});
  x = ctx.allocate<int>(64, s);
  EXPECT_NE(x.data(), first);
  EXPECT_NE(ctx.allocate<int>(64, s).data(), first);
  gate.open();
  t.synchronize();
}

TEST_F(Buffers, MovingFreesWhatWasOwned) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.stream();
  auto x = ctx.allocate<int>(64, s);
  auto h = ctx.allocate_pinned<int>(64);
  x = ctx.allocate<int>(128, s);
  h = ctx.allocate_pinned<int>(128);
  EXPECT_EQ(ctx.memory_statistics().allocation[0].current, 1);
  EXPECT_EQ(pinned_statistics().active_requests.current, 1);
  x = {};
  h = {};
  EXPECT_EQ(ctx.memory_statistics().allocation[0].current, 0);
  EXPECT_EQ(pinned_statistics().active_requests.current, 0);
}

TEST_F(Buffers, APinnedBufferMayGoWhileItsCopyIsQueued) {  // C-11
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  auto x = ctx.allocate<int>(64, s);
  Gate gate(s);
  {
    auto h = ctx.allocate_pinned<int>(64);
    std::fill(h.begin(), h.end(), 3);
    s.copy(x, h);
  }
  auto again = ctx.allocate_pinned<int>(64);
  std::fill(again.begin(), again.end(), 4);
  gate.open();
  std::vector<int> back(64);
  s.copy(back, x);
  EXPECT_EQ(back[0], 3);
}

TEST_F(Buffers, MoveOnlyHostFunctions) {  // D-05
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  auto value = std::make_unique<int>(41);
  int seen = 0;
  s.enqueue_host_func([value = std::move(value), &seen] { seen = *value + 1; });
  s.synchronize();
  EXPECT_EQ(seen, 42);
  s.enqueue_host_func([] { throw std::length_error("from the callable"); });
  EXPECT_THROW(s.synchronize(), std::length_error);

  // What it owns is destroyed on the driver's thread: memory of the device, too.
  s.enqueue_host_func([x = ctx.allocate<int>(8, s)] {});
  s.synchronize();
  EXPECT_EQ(ctx.memory_statistics().allocated_bytes[0].current, 0);
}

TEST_F(Buffers, ACallableThatIsNeverRunIsDestroyed) {  // D-05
  auto held = std::make_shared<int>(1);
  {
    const DeviceContext ctx(0);
    const DeviceStream s = ctx.create_stream();
    const CompletionFlag never(ctx);
    s.wait_for_host_value(never, 1);
    s.enqueue_host_func([held] {});
    EXPECT_EQ(held.use_count(), 2);
    shut_down();
    EXPECT_EQ(held.use_count(), 1);
    EXPECT_THROW(s.enqueue_host_func([held] {}), Error);
    EXPECT_EQ(held.use_count(), 1);
  }
}

class CheckedBuffers : public ::testing::Test {
 protected:
  void SetUp() override {
    base::Settings settings;
    settings.check_driver = true;
    host::HostOptions options;
    options.scribble_freed = true;
    start_runtime(options, settings);
  }
  void TearDown() override { runtime::Registry::instance().reset_for_test(nullptr); }
};

TEST_F(CheckedBuffers, UseAfterFreeIsFound) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  auto x = ctx.allocate<int>(64, s), y = ctx.allocate<int>(64, s);
  auto h = ctx.allocate_pinned<int>(64);
  s.fill(y, 1);
  const Buffer<int> stale = x.view();
  s.fill(stale, 1);
  x = {};
  for (const auto& call : std::vector<std::function<void()>>{[&] { s.fill(stale, 1); }, [&] { s.copy(stale, h); },
                                                             [&] { s.copy(h, stale); }, [&] { s.copy(y, stale); },
                                                             [&] { s.copy(stale.part(1, 2), y.part(0, 2)); }}) {
    const auto text = refusal_of(call, StatusCode::invalid_argument);
    EXPECT_TRUE(mentions(text, "used after it was freed")) << text;
  }
  const Buffer<int> wrong(y.data(), std::uint64_t{1} << 40, 0);
  const auto text = refusal_of([&] { s.fill(wrong, 1); }, StatusCode::invalid_argument);
  EXPECT_TRUE(mentions(text, "larger than the memory")) << text;
  s.synchronize();
}

}  // namespace
}  // namespace mojo::test
