// Every call of the C++ API: on the host driver as it is, under the checking layer, under the adversarial schedule.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "drivers/host/host_driver.h"
#include "drivers/layers/checked.h"
#include "mojo/mojo.h"
#include "runtime/registry.h"

namespace mojo::conformance {
namespace {

struct Setup {
  std::string name, schedule = "fifo";
  bool checked = false;
};

std::vector<Setup> setups() {
  std::vector<Setup> all{{.name = "plain"}, {.name = "checked", .checked = true}};
  for (int seed = 0; seed < 50; ++seed) {
    all.push_back({.name = "random_" + std::to_string(seed), .schedule = "random:" + std::to_string(seed)});
  }
  return all;
}

std::ostream& operator<<(std::ostream& out, const Setup& setup) { return out << setup.name; }

class CppApi : public ::testing::TestWithParam<Setup> {
 protected:
  void SetUp() override {
    host::HostOptions options;
    options.devices = 2;
    options.workers = 2;
    options.memory_bytes = std::uint64_t{1} << 30;
    options.schedule = GetParam().schedule;
    options.scribble_freed = true;
    std::unique_ptr<driver::Driver> driver = host::make_host_driver(options);
    base::Settings settings;
    if (GetParam().checked) {
      driver = layers::make_checked(std::move(driver));
      settings.check_driver = true;
    }
    runtime::Registry::instance().reset_for_test(std::move(driver), settings);
  }
  void TearDown() override {
    if (!shutting_down()) pinned_empty_cache();  // what is cached belongs to this driver
    runtime::Registry::instance().reset_for_test(nullptr);
  }
};

template <class F>
StatusCode code_of(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()), "");
    return error.code();
  }
  return StatusCode::ok;
}

TEST_P(CppApi, ContextsAndStreams) {  // D-01, D-02
  const DeviceContext ctx(0);
  EXPECT_EQ(DeviceContext("host", 0), ctx);
  EXPECT_NE(DeviceContext(1), ctx);
  EXPECT_EQ(DeviceContext::count(), 2);
  EXPECT_EQ(DeviceContext::driver_name(), "host");
  EXPECT_FALSE(ctx.name().empty());
  const MemoryInfo info = ctx.memory_info();
  EXPECT_LE(info.free, info.total);
  EXPECT_GT(info.total, 0U);
  EXPECT_EQ(ctx.stream().id(), 0U);
  const DeviceStream s = ctx.create_stream({.priority = -1}), t = ctx.create_stream();
  EXPECT_EQ(s.id(), 1U);
  EXPECT_EQ(t.id(), 2U);
  EXPECT_EQ(s.priority(), -1);
  EXPECT_NE(s.native_handle(), nullptr);
  EXPECT_NE(s.native_handle(), t.native_handle());
  EXPECT_TRUE(s.query());
  s.synchronize();
}

TEST_P(CppApi, EventsOrderStreams) {  // D-02, E-05
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  DeviceEvent e = ctx.create_event(), never = ctx.create_event();
  const DeviceEvent begin = ctx.create_event({.timing = true}), end = ctx.create_event({.timing = true});
  auto x = ctx.allocate<int>(1000, s), y = ctx.allocate<int>(1000, t);
  for (int round = 1; round <= 5; ++round) {
    t.enqueue_wait_for(never);
    s.enqueue_wait_for(t);
    s.fill(x, round);
    s.record_event(e);
    t.enqueue_wait_for(e);
    t.copy(y, x);
    std::vector<int> back(1000);
    t.copy(back, y);
    EXPECT_EQ(back, std::vector<int>(1000, round));
    EXPECT_TRUE(e.query());
  }
  x.record_stream(t);
}

TEST_P(CppApi, Timing) {  // E-04
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  DeviceEvent begin = ctx.create_event({.timing = true}), end = ctx.create_event({.timing = true});
  s.record_event(begin);
  s.enqueue_delay(1'000'000);
  s.record_event(end);
  end.synchronize();
  // The adversarial schedule has its own opinion of time; it goes on.
  EXPECT_GE(begin.elapsed_ms(end), GetParam().schedule == "fifo" ? 1.0 : 1e-6);
}

TEST_P(CppApi, CopiesAndFills) {  // D-08
  const DeviceContext ctx(0), other(1);
  const DeviceStream s = ctx.create_stream(), t = other.create_stream();
  auto h = ctx.allocate_pinned<std::uint16_t>(4096), back = ctx.allocate_pinned<std::uint16_t>(4096);
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = static_cast<std::uint16_t>(i);
  auto x = ctx.allocate<std::uint16_t>(4096, s);
  auto y = other.allocate<std::uint16_t>(4096, t);
  s.copy(x, h);
  s.fill(x.part(100, 10), std::uint16_t{7});
  t.enqueue_wait_for(s);
  t.copy(y, x);
  x.record_stream(t);
  t.copy(back, y);
  t.synchronize();
  for (std::size_t i = 0; i < back.size(); ++i) EXPECT_EQ(back[i], i >= 100 && i < 110 ? 7 : i);
  std::array<std::uint16_t, 3> three{1, 2, 3};
  t.copy(y.part(0, 3), three);
  three = {};
  t.copy(three, y.part(0, 3));
  EXPECT_EQ(three, (std::array<std::uint16_t, 3>{1, 2, 3}));
}

constexpr const char* scale_source = R"(
extern "C" MOJO_KERNEL void scale(mojo::Buffer<const float> x, mojo::Buffer<float> y, float a, unsigned n) {
  for (unsigned i = mojo::global_index(); i < n; i += mojo::global_size()) y[i] = a * x[i];
}
)";
using Scale = void(Buffer<const float>, Buffer<float>, float, std::uint32_t);

TEST_P(CppApi, CompiledFunctions) {  // D-03, D-04, D-08
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  const auto scale = ctx.compile_function<Scale>(scale_source, "scale");
  EXPECT_EQ(scale.name(), "scale");
  const std::uint32_t n = 1000;
  auto x = ctx.allocate<float>(n, s), y = ctx.allocate<float>(n, t);
  std::vector<float> back(n);
  for (int round = 1; round <= 3; ++round) {
    s.enqueue_wait_for(t);
    s.fill(x, static_cast<float>(round));
    t.enqueue_wait_for(s);
    t.enqueue_function(scale, {.grid = {4}, .block = {256}}, x, y, 2.0F, n);
    x.record_stream(t);
    t.copy(back, y);
    EXPECT_EQ(back, std::vector<float>(n, 2.0F * static_cast<float>(round)));
  }
  const std::array<std::uint64_t, 2> in{x.data().address, n}, out{y.data().address, n};
  const float a = 5.0F;
  const std::array<const void*, 4> arguments{&in, &out, &a, &n};
  const std::array<std::uint32_t, 4> sizes{16, 16, 4, 4};
  EXPECT_EQ(t.enqueue(scale, {.grid = {1}, .block = {32}}, arguments, sizes), std::nullopt);
  t.copy(back, y);
  EXPECT_EQ(back, std::vector<float>(n, 15.0F));
  EXPECT_NE(t.enqueue(scale, {.grid = {1}, .block = {0}}, arguments, sizes), std::nullopt);
}

TEST_P(CppApi, MemoryIsReusedInStreamOrder) {  // M-01, M-02
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  for (int round = 0; round < 20; ++round) {
    auto result = ctx.allocate_pinned<int>(256);
    {
      auto x = ctx.allocate<int>(256, s);
      s.fill(x, round);
      t.enqueue_wait_for(s);
      t.copy(result, x);
      x.record_stream(t);
    }
    auto next = ctx.allocate<int>(256, s);
    s.fill(next, -1);
    t.synchronize();
    EXPECT_EQ(result[0], round);
    EXPECT_EQ(result[255], round);
  }
}

TEST_P(CppApi, HostFunctions) {  // D-05
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  auto x = ctx.allocate<int>(4, s);
  DeviceEvent e = ctx.create_event();
  s.record_event(e);
  std::vector<int> order;
  s.enqueue_host_func(
      +[](void* p) { static_cast<std::vector<int>*>(p)->push_back(1); }, &order);
  s.enqueue_host_func([value = std::make_unique<int>(2), &order] { order.push_back(*value); });
  EXPECT_EQ(code_of([&] { s.enqueue_host_func(nullptr, nullptr); }), StatusCode::invalid_argument);
  s.synchronize();
  EXPECT_EQ(order, (std::vector{1, 2}));

  // Every call of the device API is refused inside one, and nothing hangs.
  const auto scale = ctx.compile_function<Scale>(scale_source, "scale");
  auto f = ctx.allocate<float>(4, s);
  std::vector<std::pair<const char*, StatusCode>> codes;
  std::optional<std::string> untyped;
  std::vector<int> host(4);
  s.enqueue_host_func([&] {
    const auto note = [&](const char* name, auto&& call) { codes.emplace_back(name, code_of(call)); };
    note("synchronize", [&] { s.synchronize(); });
    note("other synchronize", [&] { t.synchronize(); });
    note("device synchronize", [&] { ctx.synchronize(); });
    note("query", [&] { static_cast<void>(s.query()); });
    note("event query", [&] { static_cast<void>(e.query()); });
    note("event synchronize", [&] { e.synchronize(); });
    note("record", [&] { t.record_event(e); });
    note("wait", [&] { t.enqueue_wait_for(e); });
    note("wait for stream", [&] { t.enqueue_wait_for(s); });
    note("create_stream", [&] { static_cast<void>(ctx.create_stream()); });
    note("create_event", [&] { static_cast<void>(ctx.create_event()); });
    note("allocate", [&] { static_cast<void>(ctx.allocate<int>(4, s)); });
    note("allocate_pinned", [&] { static_cast<void>(ctx.allocate_pinned<int>(4)); });
    note("record_stream", [&] { x.record_stream(t); });
    note("fill", [&] { t.fill(x, 1); });
    note("upload", [&] { t.copy(x, host); });
    note("download", [&] { t.copy(host, x); });
    note("copy", [&] { t.copy(x.part(0, 1), x.part(1, 1)); });
    note("host function", [&] { t.enqueue_host_func([] {}); });
    note("flag", [&] { const CompletionFlag flag(ctx); });
    note("native_handle", [&] { static_cast<void>(t.native_handle()); });
    note("memory_info", [&] { static_cast<void>(ctx.memory_info()); });
    note("compile", [&] { static_cast<void>(ctx.compile_function<void(int)>("", "f")); });
    note("launch", [&] { t.enqueue_function(scale, {.grid = {1}, .block = {1}}, f, f, 1.0F, 1U); });
    untyped = t.enqueue(scale, {}, {}, {});
  });
  s.synchronize();
  EXPECT_TRUE(untyped.has_value());
  EXPECT_EQ(codes.size(), 24U);
  for (const auto& [name, code] : codes) EXPECT_EQ(code, StatusCode::failed_precondition) << name;
}

TEST_P(CppApi, CompletionFlags) {  // D-06
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), t = ctx.create_stream(), free = ctx.create_stream();
  auto x = ctx.allocate<int>(4, s);
  std::vector<int> back(4);
  {
    const CompletionFlag flag(ctx);
    s.wait_for_host_value(flag, 7);
    s.fill(x, 5);
    EXPECT_EQ(flag.value(), 0U);
    flag.signal(6);
    EXPECT_FALSE(s.query());
    free.enqueue_host_func([] {});
    free.synchronize();  // no other stream is held
    auto feeder = std::async(std::launch::async, [&] { flag.signal(7); });
    s.copy(back, x);
    feeder.get();
    EXPECT_EQ(flag.value(), 7U);
    EXPECT_EQ(back[3], 5);
  }
  {
    const CompletionFlag flag(ctx);
    s.wait_for_host_value(flag, 1);
    t.wait_for_host_value(flag, 2);
  }  // destroyed in use: the streams go on, with an error kept on each
  s.fill(x, 6);
  EXPECT_EQ(code_of([&] { t.synchronize(); }), StatusCode::failed_precondition);
  EXPECT_EQ(code_of([&] { s.synchronize(); }), StatusCode::failed_precondition);
  s.copy(back, x);
  EXPECT_EQ(back[0], 6);
  const CompletionFlag elsewhere(DeviceContext(1));
  EXPECT_EQ(code_of([&] { s.wait_for_host_value(elsewhere, 1); }), StatusCode::invalid_argument);
}

TEST_P(CppApi, EveryCallAfterShutdownIsAClearError) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  auto x = ctx.allocate<int>(4, s);
  auto h = ctx.allocate_pinned<int>(4);
  std::vector<int> pageable(4);
  DeviceEvent e = ctx.create_event();
  s.record_event(e);
  const auto scale = ctx.compile_function<Scale>(scale_source, "scale");
  auto f = ctx.allocate<float>(4, s);
  const CompletionFlag flag(ctx);
  s.wait_for_host_value(flag, 1);  // still held when everything ends
  shut_down();
  const std::vector<std::pair<const char*, std::function<void()>>> calls{
      {"another device", [&] { DeviceContext{1}; }},
      {"name", [&] { static_cast<void>(ctx.name()); }},
      {"memory_info", [&] { static_cast<void>(ctx.memory_info()); }},
      {"create_stream", [&] { static_cast<void>(ctx.create_stream()); }},
      {"create_event", [&] { static_cast<void>(ctx.create_event()); }},
      {"allocate", [&] { static_cast<void>(ctx.allocate<int>(4, s)); }},
      {"allocate_pinned", [&] { static_cast<void>(ctx.allocate_pinned<int>(4)); }},
      {"compile", [&] { static_cast<void>(ctx.compile_function<void(int)>("", "f")); }},
      {"launch", [&] { s.enqueue_function(scale, {.grid = {1}, .block = {1}}, f, f, 1.0F, 1U); }},
      {"device synchronize", [&] { ctx.synchronize(); }},
      {"empty_cache", [&] { ctx.empty_cache(); }},
      {"record_stream", [&] { x.record_stream(t); }},
      {"upload", [&] { s.copy(x, h); }},
      {"staged upload", [&] { s.copy(x, pageable); }},
      {"download", [&] { s.copy(h, x); }},
      {"blocking download", [&] { s.copy(pageable, x); }},
      {"copy", [&] { s.copy(x.part(0, 1), x.part(1, 1)); }},
      {"fill", [&] { s.fill(x, 1); }},
      {"record", [&] { s.record_event(e); }},
      {"wait", [&] { t.enqueue_wait_for(e); }},
      {"wait for stream", [&] { t.enqueue_wait_for(s); }},
      {"query", [&] { static_cast<void>(s.query()); }},
      {"synchronize", [&] { s.synchronize(); }},
      {"event query", [&] { static_cast<void>(e.query()); }},
      {"event synchronize", [&] { e.synchronize(); }},
      {"host function",
       [&] {
         s.enqueue_host_func(
             +[](void*) {}, nullptr);
       }},
      {"callable", [&] { s.enqueue_host_func([] {}); }},
      {"wait for value", [&] { s.wait_for_host_value(flag, 1); }},
      {"signal", [&] { flag.signal(1); }},
      {"new flag", [&] { const CompletionFlag another(ctx); }},
      {"native_handle", [&] { static_cast<void>(s.native_handle()); }},
      {"delay", [&] { s.enqueue_delay(1); }},
  };
  for (const auto& [name, call] : calls) EXPECT_EQ(code_of(call), StatusCode::shut_down) << name;
  EXPECT_NE(s.enqueue(scale, {}, {}, {}), std::nullopt);
}  // and the destructors of buffers, events and flags do nothing

INSTANTIATE_TEST_SUITE_P(Host, CppApi, ::testing::ValuesIn(setups()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mojo::conformance
