// Several streams and memory: what record_stream and the clocks do to reuse.
#include "support/host_fixture.h"

namespace mojo::test {
namespace {

using MemoryOrder = HostRuntime;
constexpr std::uint64_t bytes = 12 << 20;  // a segment of its own

TEST_F(MemoryOrder, FreedMemoryIsReusedAtOnceOnItsStream) {  // M-03
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  Gate gate(s);
  const Allocation x = ctx.allocate_bytes(bytes, s);
  DeviceContext::free(x.handle);
  const Allocation y = ctx.allocate_bytes(bytes, s);
  EXPECT_EQ(x.ptr, y.ptr);
  DeviceContext::free(y.handle);
}

TEST_F(MemoryOrder, AnotherStreamGetsItOnlyWhenItIsOrderedBefore) {  // M-03
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), t = ctx.create_stream();
  Gate gate(s);
  const Allocation x = ctx.allocate_bytes(bytes, s);
  queue(s, [] {});
  DeviceContext::free(x.handle);
  const Allocation y = ctx.allocate_bytes(bytes, t);
  EXPECT_NE(y.ptr, x.ptr);
  t.enqueue_wait_for(s);
  const Allocation z = ctx.allocate_bytes(bytes, t);
  EXPECT_EQ(z.ptr, x.ptr);  // the stream is held still: order is enough
  DeviceContext::free(y.handle);
  DeviceContext::free(z.handle);
}

TEST_F(MemoryOrder, RecordStreamKeepsMemoryAndNeverMakesTheOwnerWait) {  // M-02, M-04
  const DeviceContext ctx(0);
  const DeviceStream owner = ctx.create_stream(), user = ctx.create_stream();
  const Allocation x = ctx.allocate_bytes(bytes, owner);
  Gate gate(user);
  queue(user, [] {});
  DeviceContext::record_stream(x.handle, user);
  const std::uint64_t before = owner.position();
  DeviceContext::free(x.handle);
  const Allocation y = ctx.allocate_bytes(bytes, owner);
  EXPECT_NE(y.ptr, x.ptr);
  EXPECT_EQ(owner.position(), before);  // nothing was queued on the owner
  EXPECT_TRUE(owner.query());
  gate.open();
  user.synchronize();
  const Allocation z = ctx.allocate_bytes(bytes, owner);
  EXPECT_EQ(z.ptr, x.ptr);
  DeviceContext::free(y.handle);
  DeviceContext::free(z.handle);
}

TEST_F(MemoryOrder, RecordStreamOfAnotherDevice) {  // M-02
  const DeviceContext d0(0), d1(1);
  const DeviceStream owner = d0.create_stream(), user = d1.create_stream();
  const Allocation x = d0.allocate_bytes(bytes, owner);
  Gate gate(user);
  queue(user, [] {});
  DeviceContext::record_stream(x.handle, user);
  DeviceContext::free(x.handle);
  const Allocation y = d0.allocate_bytes(bytes, owner);
  EXPECT_NE(y.ptr, x.ptr);
  DeviceContext::free(y.handle);
}

TEST_F(MemoryOrder, AUseTheOwnerIsOrderedAfterCostsNothing) {  // M-02
  const DeviceContext ctx(0);
  const DeviceStream owner = ctx.create_stream(), user = ctx.create_stream();
  const Allocation x = ctx.allocate_bytes(bytes, owner);
  Gate gate(user);
  queue(user, [] {});
  DeviceContext::record_stream(x.handle, user);
  owner.enqueue_wait_for(user);
  DeviceContext::free(x.handle);
  const Allocation y = ctx.allocate_bytes(bytes, owner);
  EXPECT_EQ(y.ptr, x.ptr);
  DeviceContext::free(y.handle);
}

TEST_F(MemoryOrder, EmptyCacheWhileStreamsAreBusy) {  // M-06
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const Allocation x = ctx.allocate_bytes(bytes, s);
  auto* cells = on_host<std::uint64_t>(x.ptr);
  std::uint64_t seen = 0;
  {
    Gate gate(s);
    queue(s, [cells] { cells[3] = 7; });
    queue(s, [cells, &seen] { seen = cells[3]; });
    DeviceContext::free(x.handle);
    ctx.empty_cache();
    EXPECT_GT(ctx.memory_statistics().reserved_bytes[0].current, 0);
  }
  s.synchronize();
  EXPECT_EQ(seen, 7U);
  ctx.empty_cache();
  EXPECT_EQ(ctx.memory_statistics().reserved_bytes[0].current, 0);
}

TEST_F(MemoryOrder, OutOfMemoryReleasesTheCacheThenRaisesAndRecovers) {  // M-07
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const std::uint64_t capacity = ctx.memory_info().free;
  const Allocation x = ctx.allocate_bytes(capacity * 2 / 5, s);
  DeviceContext::free(x.handle);
  const Allocation y = ctx.allocate_bytes(capacity * 3 / 4, s);  // only without the cached block
  EXPECT_EQ(ctx.memory_statistics().num_alloc_retries, 1);
  try {
    static_cast<void>(ctx.allocate_bytes(capacity, s));
    FAIL();
  } catch (const OutOfMemory& error) {
    const std::string text = error.what();
    for (const char* part : {"allocate", "free", "allocated", "reserved"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
  EXPECT_EQ(ctx.memory_statistics().num_ooms, 1);
  const Allocation z = ctx.allocate_bytes(1024, s);
  EXPECT_TRUE(z.ptr);
  DeviceContext::free(z.handle);
  DeviceContext::free(y.handle);
}

TEST_F(MemoryOrder, ALimitHolds) {  // M-08
  const DeviceContext ctx(0);
  ctx.set_memory_limit(32 << 20);
  EXPECT_THROW(static_cast<void>(ctx.allocate_bytes(64 << 20, ctx.stream())), OutOfMemory);
  ctx.set_memory_limit(0);
  const Allocation x = ctx.allocate_bytes(64 << 20, ctx.stream());
  DeviceContext::free(x.handle);
}

TEST_F(MemoryOrder, BlocksOfManyStreamsAreFoundAgain) {  // S-11, M-03
  const DeviceContext ctx(0);
  for (int i = 0; i < 5000; ++i) {
    const DeviceStream s = ctx.create_stream();
    const Allocation x = ctx.allocate_bytes(4096, s);
    queue(s, [] {});
    DeviceContext::free(x.handle);
    if (i % 50 == 49) ctx.synchronize();
  }
  EXPECT_LE(ctx.memory_statistics().reserved_bytes[0].peak, 51 * (2 << 20));  // no more than between two waits
}

}  // namespace
}  // namespace mojo::test
