// How failures of queued work travel.
#include <stdexcept>

#include "support/host_fixture.h"

namespace mojo::test {
namespace {

using Failures = HostRuntime;

void fail(DeviceStream s, const char* text) {
  queue(s, [text] { throw std::out_of_range(text); });
}

TEST_F(Failures, AreRaisedOnceByTheStreamWithTheirOwnType) {  // O-08
  const DeviceStream s = DeviceContext(0).create_stream();
  int later = 0;
  fail(s, "index 7");
  queue(s, [&] { later = 1; });
  try {
    s.synchronize();
    FAIL();
  } catch (const std::out_of_range& error) {
    EXPECT_STREQ(error.what(), "index 7");
  }
  EXPECT_EQ(later, 1);  // later work ran
  s.synchronize();      // once
}

TEST_F(Failures, QueryNeverRaises) {  // O-08
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  fail(s, "x");
  DeviceEvent e = ctx.create_event();
  s.record_event(e);
  while (!s.query() || !e.query()) {}
  EXPECT_THROW(s.synchronize(), std::out_of_range);
}

TEST_F(Failures, AnEventRaisesOnlyWhatFailedBeforeIt) {  // O-08
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  DeviceEvent before = ctx.create_event(), after = ctx.create_event();
  s.record_event(before);
  fail(s, "x");
  s.record_event(after);
  while (!s.query()) {}
  before.synchronize();
  EXPECT_THROW(after.synchronize(), std::out_of_range);
  after.synchronize();
  s.synchronize();
}

TEST_F(Failures, TheDeviceRaisesTheOldestAndKeepsTheRest) {  // O-08
  const DeviceContext ctx(0);
  const DeviceStream a = ctx.create_stream(), b = ctx.create_stream(), other = ctx.create_stream();
  fail(b, "first");
  while (!b.query()) {}
  fail(a, "second");
  while (!a.query()) {}
  for (const char* expected : {"first", "second"}) {
    try {
      ctx.synchronize();
      FAIL() << expected;
    } catch (const std::out_of_range& error) {
      EXPECT_STREQ(error.what(), expected);
    }
  }
  ctx.synchronize();
  other.synchronize();
}

TEST_F(Failures, AValueReadRaisesThem) {  // O-08, O-04
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  const Allocation x = ctx.allocate_bytes(8, s);
  fail(s, "x");
  std::uint64_t value = 0;
  t.download(&value, x.ptr, 8, false);  // another stream: not its business
  EXPECT_THROW(s.download(&value, x.ptr, 8, false), std::out_of_range);
  s.download(&value, x.ptr, 8, false);
  DeviceContext::free(x.handle);
}

}  // namespace
}  // namespace mojo::test
