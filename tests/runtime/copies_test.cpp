// Linear copies between host and device memory on the host device.
#include <atomic>
#include <cstring>
#include <thread>

#include "drivers/layers/hooked.h"
#include "support/host_fixture.h"

namespace mojo::test {
namespace {

using Copies = HostRuntime;

struct Buffer {
  Allocation memory;
  Buffer(const DeviceContext& ctx, std::uint64_t bytes, DeviceStream s) : memory(ctx.allocate_bytes(bytes, s)) {}
  ~Buffer() { DeviceContext::free(memory.handle); }
};

TEST_F(Copies, PinnedUploadReadsTheSourceWhenItRuns) {  // C-01
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const Buffer x(ctx, 64, s);
  const PinnedAllocation host = pinned_allocate(ctx, 64);
  std::memset(host.ptr, 1, 64);
  {
    Gate gate(s);
    s.upload(x.memory.ptr, host.ptr, 64, true);
    std::memset(host.ptr, 2, 64);  // before the copy runs
  }
  unsigned char back[64];
  s.download(back, x.memory.ptr, 64, false);
  EXPECT_EQ(back[63], 2);
  pinned_free(host.handle);
}

TEST_F(Copies, PageableAndBlockingUploadsHoldTheDataWhenTheyReturn) {  // C-02, C-07
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const PinnedAllocation pinned = pinned_allocate(ctx, 64);
  std::vector<unsigned char> pageable(64);
  struct Row {
    void* source;
    bool non_blocking;
  };
  for (const Row row : {Row{pageable.data(), true}, Row{pageable.data(), false}, Row{pinned.ptr, false}}) {
    const Buffer x(ctx, 64, s);
    std::memset(row.source, 1, 64);
    const std::uint64_t waits = host_waits();
    {
      Gate gate(s);
      s.upload(x.memory.ptr, row.source, 64, row.non_blocking);  // returns though the stream is held
      std::memset(row.source, 2, 64);
      EXPECT_EQ(host_waits(), waits);
    }
    unsigned char back[64];
    s.download(back, x.memory.ptr, 64, false);
    EXPECT_EQ(back[0], 1);
    EXPECT_EQ(back[63], 1);
  }
  pinned_free(pinned.handle);
}

TEST_F(Copies, PinnedDownloadIsQueued) {  // C-03
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const Buffer x(ctx, 64, s);
  s.fill(x.memory.ptr, 64, 7);
  const PinnedAllocation host = pinned_allocate(ctx, 64);
  std::memset(host.ptr, 0, 64);
  Gate gate(s);
  s.download(host.ptr, x.memory.ptr, 64, true);
  EXPECT_FALSE(s.query());
  EXPECT_EQ(static_cast<unsigned char*>(host.ptr)[0], 0);
  gate.open();
  s.synchronize();
  EXPECT_EQ(static_cast<unsigned char*>(host.ptr)[63], 7);
  pinned_free(host.handle);
}

TEST_F(Copies, OtherDownloadsBlockForTheirOwnStreamAlone) {  // C-04, O-04
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), other = ctx.create_stream();
  const Buffer x(ctx, 64, s);
  s.fill(x.memory.ptr, 64, 9);
  Gate held(other);
  unsigned char back[64] = {};
  s.download(back, x.memory.ptr, 64, true);  // pageable: complete at return in spite of non_blocking
  EXPECT_EQ(back[63], 9);
  EXPECT_FALSE(other.query());
}

TEST_F(Copies, AnUploadLargerThanTheBoundWaitsForItsOwnStreamAlone) {  // C-02, C-13
  host::HostOptions options;
  options.workers = 2;
  base::Settings settings;
  settings.staging_bytes = 1 << 20;
  start_runtime(options, settings);
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream(), other = ctx.create_stream();
  constexpr std::uint64_t bytes = (5 << 20) + 3;
  const Buffer x(ctx, bytes, s);
  std::vector<unsigned char> source(bytes);
  for (std::uint64_t i = 0; i < bytes; ++i) source[i] = static_cast<unsigned char>(i * 31 >> 3);
  Gate held(other);
  std::atomic<bool> returned{false};
  auto gate = std::make_unique<Gate>(s);
  std::thread uploader([&] {
    s.upload(x.memory.ptr, source.data(), bytes, true);
    returned = true;
  });
  // It cannot return while its stream is held: at most the bound is staged.
  while (s.position() < 2) std::this_thread::yield();
  EXPECT_FALSE(returned);
  gate->open();
  uploader.join();
  const PinnedStatistics staging = pinned_statistics();
  EXPECT_LE(staging.active_bytes.peak, 2 << 20);
  std::vector<unsigned char> back(bytes);
  s.download(back.data(), x.memory.ptr, bytes, false);
  EXPECT_EQ(back, source);
  EXPECT_FALSE(other.query());
}

TEST_F(Copies, APinnedBlockFreedWhileACopyIsPendingIsNotReused) {  // C-11
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const Buffer x(ctx, 4096, s);
  const PinnedAllocation first = pinned_allocate(ctx, 4096);
  std::memset(first.ptr, 5, 4096);
  void* address = first.ptr;
  {
    Gate gate(s);
    s.upload(x.memory.ptr, static_cast<char*>(first.ptr) + 8, 64, true);  // a view of the block
    pinned_free(first.handle);
    const PinnedAllocation second = pinned_allocate(ctx, 4096);
    EXPECT_NE(second.ptr, address);
    pinned_free(second.handle);
  }
  s.synchronize();
  unsigned char back[64];
  s.download(back, x.memory.ptr, 64, false);
  EXPECT_EQ(back[0], 5);
}

TEST_F(Copies, PinnedMemoryIsRecognisedByRangeAndPortable) {  // C-08, C-10
  const DeviceContext d0(0), d1(1);
  const PinnedAllocation host = pinned_allocate(d0, 1000);
  EXPECT_TRUE(pinned_contains(host.ptr));
  EXPECT_TRUE(pinned_contains(static_cast<char*>(host.ptr) + 999));
  int local = 0;
  EXPECT_FALSE(pinned_contains(&local));
  EXPECT_FALSE(pinned_contains(nullptr));
  const DeviceStream s = d1.create_stream();  // another device takes it as pinned: the copy is only queued
  const Buffer x(d1, 64, s);
  std::memset(host.ptr, 1, 64);
  {
    Gate gate(s);
    s.upload(x.memory.ptr, host.ptr, 64, true);
    std::memset(host.ptr, 3, 64);
  }
  unsigned char back[64];
  s.download(back, x.memory.ptr, 64, false);
  EXPECT_EQ(back[5], 3);
  void* address = host.ptr;
  pinned_free(host.handle);
  EXPECT_FALSE(pinned_contains(address));
}

TEST_F(Copies, BetweenDevices) {  // C-12
  const DeviceContext d0(0), d1(1);
  const DeviceStream s0 = d0.create_stream(), s1 = d1.create_stream();
  const Buffer x(d0, 128, s0), y(d1, 128, s1);
  s0.fill(x.memory.ptr, 128, 0x0102030405060708ULL, 8);
  s1.enqueue_wait_for(s0);
  s1.copy_device_to_device(y.memory.ptr, x.memory.ptr, 128, 0);
  std::uint64_t back[16];
  s1.download(back, y.memory.ptr, 128, false);
  for (const auto v : back) EXPECT_EQ(v, 0x0102030405060708ULL);
}

TEST_F(Copies, ZeroBytesAreFine) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.stream();
  EXPECT_FALSE(ctx.allocate_bytes(0, s).ptr);
  s.upload({}, nullptr, 0, true);
  s.download(nullptr, {}, 0, false);
  EXPECT_THROW(s.fill({}, 3, 0, 2), Error);
}

// Counts the calls of one name that have begun.
class Begun final : public layers::CallHook {
 public:
  std::string name;  // set while nobody calls
  std::atomic<int> count{0};
  Status before(const layers::CallInfo& call) noexcept override {
    if (name == call.name) ++count;
    return {};
  }
  void after(const layers::CallInfo&, const Status&) noexcept override {}
};

// Runs `body` on another thread and returns once that thread is in the call of the driver.
std::thread until_in(Begun& begun, std::function<void()> body) {
  const int before = begun.count;
  std::thread thread(std::move(body));
  while (begun.count == before) std::this_thread::yield();
  return thread;
}

class WatchedCopies : public ::testing::Test {
 protected:
  void SetUp() override {
    host::HostOptions options;
    options.workers = 2;
    runtime::Registry::instance().reset_for_test(layers::make_hooked(host::make_host_driver(options), begun));
  }
  void TearDown() override { runtime::Registry::instance().reset_for_test(nullptr); }
  std::shared_ptr<Begun> begun = std::make_shared<Begun>();
};

TEST_F(WatchedCopies, ABlockingDownloadIsAnOperationOfItsStream) {  // O-02, O-04
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  for (const std::uint64_t bytes : {16ULL, 1ULL << 20}) {
    const Buffer x(ctx, bytes, s);
    s.fill(x.memory.ptr, bytes, 1);
    std::vector<unsigned char> back(bytes);
    std::thread reader;
    {
      Gate gate(s);
      begun->name = "host_task";
      reader = until_in(*begun, [&] { s.download(back.data(), x.memory.ptr, bytes, false); });
      s.fill(x.memory.ptr, bytes, 2);  // behind the download
    }
    reader.join();
    EXPECT_EQ(back.front(), 1);
    EXPECT_EQ(back.back(), 1);
  }
}

TEST_F(WatchedCopies, ADownloadFromAnIdleStreamIsOneToo) {  // O-02
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const Buffer x(ctx, 64, s);
  s.fill(x.memory.ptr, 64, 3);
  s.synchronize();
  unsigned char back[64];
  for (int i = 0; i < 100; ++i) {
    s.download(back, x.memory.ptr, 64, false);
    ASSERT_EQ(back[0], 3 + i);
    ASSERT_TRUE(s.query());
    s.fill(x.memory.ptr, 64, static_cast<std::uint64_t>(4 + i));
    s.synchronize();
  }
}

TEST_F(WatchedCopies, ASecondDeviceSynchronizeWaitsForTheSameStreams) {  // O-05
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  std::atomic<int> returned{0};
  std::vector<std::thread> threads;
  {
    Gate gate(s);
    queue(s, [] {});
    begun->name = "synchronize";
    for (int i = 0; i < 2; ++i) {
      threads.push_back(until_in(*begun, [&] {
        ctx.synchronize();
        ++returned;
      }));
    }
    EXPECT_EQ(returned, 0);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(returned, 2);
}

}  // namespace
}  // namespace mojo::test
