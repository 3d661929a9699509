// Whole scenarios with the nth call of the driver failing, for every n: the right exception, nothing leaked, and the
// next run works.
#include <cstring>

#include "drivers/layers/checked.h"
#include "drivers/layers/faulty.h"
#include "support/host_fixture.h"

namespace mojo::test {
namespace {

constexpr const char* injected = "the call that the test made fail";

// Free what a scenario got, also when it throws. Each is made with what it holds: assigning the result of a call that may
// throw to a member is miscompiled by GCC 12 at -O2 (the member's old value is gone when the destructor reads it).
struct DeviceMemory {
  const Allocation memory;
  ~DeviceMemory() { DeviceContext::free(memory.handle); }
};
struct PinnedMemory {
  const PinnedAllocation memory;
  ~PinnedMemory() { pinned_free(memory.handle); }
};

void upload_compute_download() {
  const DeviceContext ctx(0);
  const DeviceStream copies = ctx.create_stream(), main = ctx.stream();
  const DeviceMemory x{ctx.allocate_bytes(4096, copies)};
  const PinnedMemory host{pinned_allocate(ctx, 4096)};
  std::memset(host.memory.ptr, 1, 4096);
  copies.upload(x.memory.ptr, host.memory.ptr, 4096, true);
  DeviceEvent uploaded = ctx.create_event();
  copies.record_event(uploaded);
  main.enqueue_wait_for(uploaded);
  queue(main, [p = on_host<unsigned char>(x.memory.ptr)] {
    for (int i = 0; i < 4096; ++i) ++p[i];
  });
  DeviceContext::record_stream(x.memory.handle, main);
  unsigned char back[4096];
  main.download(back, x.memory.ptr, 4096, false);
  ASSERT_EQ(back[4095], 2);
}

void staged_upload_between_devices() {
  const DeviceContext d0(0), d1(1);
  const DeviceStream s0 = d0.create_stream(), s1 = d1.create_stream();
  const DeviceMemory a{d0.allocate_bytes(3 << 20, s0)}, b{d1.allocate_bytes(3 << 20, s1)};
  const std::vector<unsigned char> source(3 << 20, 9);
  s0.upload(a.memory.ptr, source.data(), source.size(), false);  // larger than the staging bound
  s1.enqueue_wait_for(s0);
  s1.copy_device_to_device(b.memory.ptr, a.memory.ptr, source.size(), 0);
  DeviceContext::record_stream(a.memory.handle, s1);
  s1.fill(b.memory.ptr, 8, 5);
  std::vector<unsigned char> back(source.size());
  s1.download(back.data(), b.memory.ptr, back.size(), true);
  ASSERT_EQ(back[7], 5);
  ASSERT_EQ(back[8], 9);
  ASSERT_EQ(back.back(), 9);
}

void events_and_values() {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream({.priority = -1});
  DeviceEvent start = ctx.create_event({.timing = true}), end = ctx.create_event({.timing = true});
  const CompletionFlag flag(ctx);
  s.record_event(start);
  s.wait_for_host_value(flag, 4);
  s.enqueue_delay(1000);
  s.record_event(end);
  flag.signal(4);
  end.synchronize();
  ASSERT_GT(start.elapsed_ms(end), 0.0);
  ctx.synchronize();
}

// Waits for the device; a stream may have kept a failure, since a scenario that ends early destroys the flag it waits for.
void settle(const DeviceContext& ctx) {
  try {
    ctx.synchronize();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("completion flag"), std::string::npos) << error.what();
    ctx.synchronize();
  }
}

class FaultSweep : public ::testing::TestWithParam<void (*)()> {};

TEST_P(FaultSweep, EveryCallMayFail) {
  auto faults = std::make_shared<layers::Faults>();
  host::HostOptions options;
  options.devices = 2;
  options.workers = 2;
  options.scribble_freed = true;
  base::Settings settings;
  settings.staging_bytes = 1 << 20;
  runtime::Registry::instance().reset_for_test(
      layers::make_faulty(layers::make_checked(host::make_host_driver(options)), faults), settings);
  int failures = 0;
  for (std::uint64_t n = 1; n < 500; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    for (int device = 0; device < 2; ++device) DeviceContext(device).empty_cache();
    pinned_empty_cache();
    faults->clear();
    faults->fail_nth(n, {n % 2 ? StatusCode::internal : StatusCode::out_of_memory, injected});
    bool threw = false;
    try {
      GetParam()();
    } catch (const Error& error) {
      threw = true;
      EXPECT_NE(std::string(error.what()).find(injected), std::string::npos) << error.what();
    } catch (const OutOfMemory& error) {
      threw = true;
    }
    const bool triggered = faults->triggered();
    faults->clear();
    for (int device = 0; device < 2; ++device) settle(DeviceContext(device));
    for (int device = 0; device < 2; ++device) {
      const DeviceContext ctx(device);
      ctx.empty_cache();
      EXPECT_EQ(ctx.memory_statistics().allocated_bytes[0].current, 0);
      EXPECT_EQ(ctx.memory_statistics().active_bytes[0].current, 0);
      EXPECT_EQ(ctx.memory_statistics().reserved_bytes[0].current, 0);
    }
    EXPECT_EQ(pinned_statistics().active_requests.current, 0);
    GetParam()();  // the next run works
    if (!triggered) {
      EXPECT_FALSE(threw);
      EXPECT_GT(n, 5U);
      break;
    }
    failures += threw;
    ASSERT_LT(n, 499U);
  }
  EXPECT_GT(failures, 3);
  runtime::Registry::instance().reset_for_test(nullptr);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, FaultSweep,
                         ::testing::Values(&upload_compute_download, &staged_upload_between_devices,
                                           &events_and_values));

}  // namespace
}  // namespace mojo::test
