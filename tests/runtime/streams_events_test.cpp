// Streams and events of the public API on the host device.
#include <atomic>
#include <thread>

#include "support/host_fixture.h"

namespace mojo::test {
namespace {

using StreamsEvents = HostRuntime;

TEST_F(StreamsEvents, DefaultStreamIsZeroAndNewOnesCountUp) {  // S-01, O-03, D-01
  const DeviceContext ctx(0);
  EXPECT_EQ(ctx.stream().id(), 0U);
  EXPECT_EQ(ctx.create_stream().id(), 1U);
  EXPECT_EQ(ctx.create_stream().id(), 2U);
  EXPECT_EQ(DeviceContext(1).create_stream().id(), 1U);
  EXPECT_EQ(ctx.stream(2), ctx.stream(2));
  EXPECT_NE(ctx.stream(1), DeviceContext(1).stream(1));
}

TEST_F(StreamsEvents, AnUnknownStreamIdRaises) {  // S-12
  const DeviceContext ctx(0);
  try {
    static_cast<void>(ctx.stream(7));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), StatusCode::out_of_range);
    EXPECT_NE(std::string(error.what()).find("no stream with id 7"), std::string::npos) << error.what();
  }
}

TEST_F(StreamsEvents, DeviceIndexOutOfRangeNamesTheRange) {
  for (const int index : {-1, 2, 1000}) {
    try {
      const DeviceContext ctx(index);
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("valid indices are 0 to 1"), std::string::npos) << error.what();
    }
  }
}

TEST_F(StreamsEvents, WorkOfOneStreamRunsInOrderAndTheCallReturnsBefore) {  // O-01, O-02
  const DeviceStream s = DeviceContext(0).create_stream();
  std::vector<int> order;
  Gate gate(s);
  for (int i = 0; i < 100; ++i) queue(s, [&order, i] { order.push_back(i); });
  EXPECT_FALSE(s.query());  // S-07
  EXPECT_TRUE(order.empty());
  gate.open();
  s.synchronize();
  EXPECT_TRUE(s.query());
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST_F(StreamsEvents, QueryIsFalseWhileTheLastTaskRuns) {  // S-07
  const DeviceStream s = DeviceContext(0).create_stream();
  std::atomic<bool> running{false}, go_on{false};
  queue(s, [&] {
    running = true;
    running.notify_all();
    go_on.wait(false);
  });
  running.wait(false);
  EXPECT_FALSE(s.query());
  go_on = true;
  go_on.notify_all();
  s.synchronize();
  EXPECT_TRUE(s.query());
}

TEST_F(StreamsEvents, AWaitHoldsTheStreamAndNotTheHost) {  // S-08, E-03, M-01, E-02
  const DeviceContext ctx(0);
  const DeviceStream producer = ctx.create_stream(), consumer = ctx.create_stream();
  int value = 0, seen = -1;
  Gate gate(producer);
  queue(producer, [&] { value = 42; });
  std::uint64_t waits = 0;
  {
    DeviceEvent event = ctx.create_event();
    EXPECT_FALSE(event.recorded());
    EXPECT_TRUE(event.query());  // E-05
    event.synchronize();         // counts as a wait, although there is nothing to wait for
    waits = host_waits();
    consumer.enqueue_wait_for(event);  // never recorded: nothing
    producer.record_event(event);
    EXPECT_FALSE(event.query());
    consumer.enqueue_wait_for(event);
  }  // E-09: destroyed with the wait pending
  queue(consumer, [&] { seen = value; });
  EXPECT_EQ(host_waits(), waits);
  EXPECT_FALSE(consumer.query());
  gate.open();
  consumer.synchronize();
  EXPECT_EQ(seen, 42);
}

TEST_F(StreamsEvents, AWaitKeepsTheRecordItWasIssuedAgainst) {  // E-06
  const DeviceContext ctx(0);
  const DeviceStream a = ctx.create_stream(), b = ctx.create_stream();
  DeviceEvent event = ctx.create_event();
  Gate first(a);
  a.record_event(event);
  b.enqueue_wait_for(event);
  Gate second(a);
  a.record_event(event);
  first.open();
  b.synchronize();  // waits for the first record only: the second is still held
  EXPECT_FALSE(event.query());
  second.open();
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST_F(StreamsEvents, WaitingForAnotherDeviceWorksRecordingThereDoesNot) {  // E-09
  const DeviceContext d0(0), d1(1);
  const DeviceStream a = d0.create_stream(), b = d1.create_stream();
  DeviceEvent event = d0.create_event();
  Gate gate(a);
  a.record_event(event);
  b.enqueue_wait_for(event);
  EXPECT_FALSE(b.query());
  try {
    b.record_event(event);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("device 0"), std::string::npos) << error.what();
  }
  gate.open();
  b.synchronize();
  EXPECT_TRUE(a.query());
}

TEST_F(StreamsEvents, ElapsedTime) {  // E-04
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  DeviceEvent plain = ctx.create_event(), start = ctx.create_event({.timing = true}),
              end = ctx.create_event({.timing = true});
  const auto code = [](const DeviceEvent& a, const DeviceEvent& b) {
    try {
      static_cast<void>(a.elapsed_ms(b));
    } catch (const Error& error) {
      return error.code();
    }
    return StatusCode::ok;
  };
  EXPECT_EQ(code(plain, end), StatusCode::invalid_argument);
  EXPECT_EQ(code(start, end), StatusCode::failed_precondition);
  s.record_event(start);
  Gate gate(s);
  s.record_event(end);
  EXPECT_EQ(code(start, end), StatusCode::failed_precondition);
  gate.open();
  end.synchronize();
  const double ms = start.elapsed_ms(end);
  EXPECT_GT(ms, 0.0);
  EXPECT_EQ(ms, start.elapsed_ms(end));
}

TEST_F(StreamsEvents, DeviceSynchronizeCoversEveryStream) {  // O-05
  const DeviceContext ctx(0);
  std::vector<int> done(50, 0);
  for (int i = 0; i < 50; ++i) queue(ctx.create_stream(), [&done, i] { done[i] = 1; });
  ctx.synchronize();
  for (const int d : done) EXPECT_EQ(d, 1);
}

TEST_F(StreamsEvents, AThreadThatWaitsStopsNoOther) {  // O-07
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  Gate gate(s);
  std::atomic<bool> started{false};
  std::thread waiter([&] {
    started = true;
    started.notify_all();
    s.synchronize();
  });
  started.wait(false);
  DeviceEvent event = ctx.create_event();
  for (int i = 0; i < 1000; ++i) {  // none of these may block: the gate is still closed
    s.record_event(event);
    t.enqueue_wait_for(event);
    EXPECT_FALSE(s.query());
  }
  gate.open();
  waiter.join();
}

TEST_F(StreamsEvents, PrioritiesAreClampedAndReadBack) {  // S-05
  const DeviceContext ctx(0);
  const PriorityRange range = ctx.priority_range();
  EXPECT_LT(range.greatest, range.least);
  for (const int p : {-1000000, -1, 0, 1000000}) {
    EXPECT_EQ(ctx.create_stream({.priority = p}).priority(), std::clamp(p, range.greatest, range.least));
  }
}

TEST_F(StreamsEvents, NativeHandlesAreStableAndDistinct) {  // S-09
  const DeviceContext ctx(0);
  const DeviceStream a = ctx.create_stream(), b = ctx.create_stream();
  EXPECT_NE(a.native_handle(), nullptr);
  EXPECT_EQ(a.native_handle(), a.native_handle());
  EXPECT_NE(a.native_handle(), b.native_handle());
}

TEST_F(StreamsEvents, HostFunctionsRunInOrderAndMayNotCallTheDevice) {  // D-05
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  struct State {
    DeviceStream stream;
    StatusCode code = StatusCode::ok;
  } state{s};
  s.enqueue_host_func(
      [](void* raw) {
        auto* st = static_cast<State*>(raw);
        try {
          st->stream.synchronize();
        } catch (const Error& error) {
          st->code = error.code();
        }
      },
      &state);
  s.synchronize();
  EXPECT_EQ(state.code, StatusCode::failed_precondition);
}

TEST_F(StreamsEvents, DestroyingAFlagReleasesTheStreamWithAnError) {  // D-06
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  int ran = 0;
  {
    const CompletionFlag flag(ctx);
    s.wait_for_host_value(flag, 3);
    flag.signal(2);
    EXPECT_FALSE(s.query());
  }
  queue(s, [&] { ran = 1; });
  EXPECT_THROW(s.synchronize(), Error);
  s.synchronize();
  EXPECT_EQ(ran, 1);
}

TEST_F(StreamsEvents, AChainOf200StreamsFinishesWithTwoWorkers) {  // S-08
  const DeviceContext ctx(0);
  std::vector<DeviceStream> streams;
  for (int i = 0; i < 200; ++i) streams.push_back(ctx.create_stream());
  Gate gate(streams[0]);
  int value = 0;
  for (int i = 0; i < 200; ++i) {
    if (i > 0) streams[i].enqueue_wait_for(streams[i - 1]);
    queue(streams[i], [&value] { ++value; });
  }
  gate.open();
  streams.back().synchronize();
  EXPECT_EQ(value, 200);
}

TEST_F(StreamsEvents, ManyStreamsCostNoThreadEach) {  // S-11
  const DeviceContext ctx(0);
  queue(ctx.stream(), [] {});
  ctx.synchronize();
  const auto figure = [](const char* name) {
    long value = -1;
    std::FILE* file = std::fopen("/proc/self/status", "r");
    char line[256];
    while (std::fgets(line, sizeof line, file) != nullptr) {
      if (std::string(line).rfind(name, 0) == 0) value = std::strtol(line + std::string(name).size(), nullptr, 10);
    }
    std::fclose(file);
    return value;
  };
  const long threads = figure("Threads:");
  for (int i = 0; i < 10000; ++i) static_cast<void>(ctx.create_stream());
  EXPECT_EQ(figure("Threads:"), threads);
}

}  // namespace
}  // namespace mojo::test
