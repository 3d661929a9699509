// Random programs of streams, events, copies, allocations, frees and operations over 4 streams and 2 devices equal a
// sequential model, on the plain and on the adversarial schedule. M-01, M-02, M-03, M-10, C-11
#include <algorithm>
#include <cstring>
#include <optional>

#include "support/host_fixture.h"

namespace mojo::test {
namespace {

// What a program may leave out, to see that it then goes wrong.
enum class LeftOut { nothing, waits, record_stream };

class Program {
 public:
  Program(std::uint64_t seed, int steps, LeftOut left_out) : random_(seed), steps_(steps), left_out_(left_out) {
    for (int device = 0; device < 2; ++device) {
      const DeviceContext ctx(device);
      streams_.push_back(ctx.stream());
      streams_.push_back(ctx.create_stream());
    }
  }

  // How many of the values read back were wrong; ends at the first.
  int run() {
    for (int i = 0; i < steps_ && wrong_ == 0; ++i) step();
    while (!buffers_.empty()) {
      if (wrong_ == 0) check(0);
      drop(0);
    }
    DeviceContext(0).synchronize();
    DeviceContext(1).synchronize();
    return wrong_;
  }

 private:
  struct Buffer {
    int device;
    std::size_t owner;  // the stream it was allocated on
    Allocation memory;
    std::size_t cells;
    std::vector<std::uint64_t> model;
    std::optional<std::size_t> writer;  // stream of the last write that others must wait for
    std::vector<std::size_t> readers;   // streams that read since
    std::vector<std::size_t> users;
  };

  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  std::uint64_t* cells(const Buffer& b) { return on_host<std::uint64_t>(b.memory.ptr); }

  // What a correct program does before stream `s` touches `b`.
  void order(Buffer& b, std::size_t s, bool write) {
    const auto after = [&](std::size_t other) {
      if (other == s || left_out_ == LeftOut::waits) return;
      switch (below(3)) {
        case 0: streams_[s].enqueue_wait_for(streams_[other]); break;
        case 1: {
          DeviceEvent event = DeviceContext(streams_[other].device_index()).create_event();
          streams_[other].record_event(event);
          streams_[s].enqueue_wait_for(event);
          break;
        }
        default: streams_[other].synchronize();
      }
    };
    if (b.writer) after(*b.writer);
    if (write) {
      for (const std::size_t reader : b.readers) after(reader);
      b.readers.clear();
      b.writer = s;
    } else if (std::find(b.readers.begin(), b.readers.end(), s) == b.readers.end()) {
      b.readers.push_back(s);
    }
    if (s != b.owner && left_out_ != LeftOut::record_stream) DeviceContext::record_stream(b.memory.handle, streams_[s]);
  }

  std::size_t some_stream(int device) { return static_cast<std::size_t>(device) * 2 + below(2); }

  void make() {
    if (buffers_.size() > 40) drop(below(buffers_.size()));
    const std::size_t owner = below(streams_.size());
    Buffer b;
    b.device = streams_[owner].device_index();
    b.owner = owner;
    b.cells = 1 + below(below(8) == 0 ? 4096 : 64);
    b.memory = DeviceContext(b.device).allocate_bytes(b.cells * 8, streams_[owner]);
    const std::uint64_t value = random_();
    streams_[owner].fill(b.memory.ptr, b.cells * 8, value, 8);
    b.model.assign(b.cells, value);
    b.writer = owner;
    buffers_.push_back(std::move(b));
  }

  void drop(std::size_t index) {
    DeviceContext::free(buffers_[index].memory.handle);
    std::swap(buffers_[index], buffers_.back());
    buffers_.pop_back();
  }

  void add() {  // dst = 3 * dst + a constant, cell by cell
    Buffer& b = buffers_[below(buffers_.size())];
    const std::size_t s = some_stream(b.device);
    order(b, s, true);
    const std::uint64_t k = random_();
    queue(streams_[s], [p = cells(b), n = b.cells, k] {
      for (std::size_t i = 0; i < n; ++i) p[i] = 3 * p[i] + k;
    });
    for (auto& v : b.model) v = 3 * v + k;
  }

  void copy() {
    const std::size_t from = below(buffers_.size()), to = below(buffers_.size());
    if (from == to) return;
    Buffer &a = buffers_[from], &b = buffers_[to];
    const std::size_t n = std::min(a.cells, b.cells);
    const std::size_t s = some_stream(b.device);
    order(a, s, false);
    order(b, s, true);
    streams_[s].copy_device_to_device(b.memory.ptr, a.memory.ptr, n * 8, a.device);
    std::copy_n(a.model.begin(), n, b.model.begin());
  }

  void upload() {
    Buffer& b = buffers_[below(buffers_.size())];
    const std::size_t s = some_stream(b.device);
    order(b, s, true);
    for (auto& v : b.model) v = random_();
    if (below(2) == 0) {
      std::vector<std::uint64_t> host = b.model;
      streams_[s].upload(b.memory.ptr, host.data(), b.cells * 8, below(2) == 0);
      std::fill(host.begin(), host.end(), 0xBAD);
    } else {
      const PinnedAllocation host = pinned_allocate(DeviceContext(static_cast<int>(below(2))), b.cells * 8);
      std::memcpy(host.ptr, b.model.data(), b.cells * 8);
      streams_[s].upload(b.memory.ptr, host.ptr, b.cells * 8, true);
      pinned_free(host.handle);  // C-11: not reused before the copy is done
    }
  }

  void check(std::size_t index) {
    Buffer& b = buffers_[index];
    const std::size_t s = some_stream(b.device);
    order(b, s, false);
    std::vector<std::uint64_t> back(b.cells);
    if (below(2) == 0) {
      streams_[s].download(back.data(), b.memory.ptr, b.cells * 8, false);
    } else {
      const PinnedAllocation host = pinned_allocate(DeviceContext(b.device), b.cells * 8);
      streams_[s].download(host.ptr, b.memory.ptr, b.cells * 8, true);
      DeviceEvent copied = DeviceContext(b.device).create_event();
      streams_[s].record_event(copied);
      copied.synchronize();
      std::memcpy(back.data(), host.ptr, b.cells * 8);
      pinned_free(host.handle);
    }
    wrong_ += back != b.model;
  }

  void step() {
    const std::size_t what = below(100);
    if (buffers_.size() < 4 || what < 15) return make();
    if (what < 28) return drop(below(buffers_.size()));
    if (what < 58) return add();
    if (what < 75) return copy();
    if (what < 87) return upload();
    if (what < 96) return check(below(buffers_.size()));
    if (what < 98) return static_cast<void>(streams_[below(streams_.size())].query());
    if (what < 99) return DeviceContext(static_cast<int>(below(2))).empty_cache();
    DeviceContext(static_cast<int>(below(2))).synchronize();
  }

  std::mt19937_64 random_;
  const int steps_;
  const LeftOut left_out_;
  int wrong_ = 0;
  std::vector<DeviceStream> streams_;
  std::vector<Buffer> buffers_;
};

int run(const std::string& schedule, std::uint64_t seed, int steps, LeftOut left_out = LeftOut::nothing) {
  host::HostOptions options;
  options.devices = 2;
  options.workers = 2;
  options.schedule = schedule;
  options.scribble_freed = true;
  options.memory_bytes = std::uint64_t{1} << 30;
  start_runtime(options);
  const int wrong = Program(seed, steps, left_out).run();
  runtime::Registry::instance().reset_for_test(nullptr);
  return wrong;
}

TEST(RandomPrograms, EqualTheModelOnTheFifoSchedule) { EXPECT_EQ(run("fifo", 20261129, 100000), 0); }
TEST(RandomPrograms, EqualTheModelWithAFreshSeed) { EXPECT_EQ(run("fifo", fresh_seed(), 100000), 0); }

TEST(RandomPrograms, EqualTheModelOnAdversarialSchedules) {
  const std::uint64_t base = fresh_seed();
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_EQ(run("random:" + std::to_string(base + i), base + i, 10000), 0) << "seed " << base + i;
  }
}

// The test above can fail, and the adversarial schedule finds what is left out.
TEST(RandomPrograms, GoWrongWithoutTheirWaitsOrUses) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the programs race on purpose, and that is what ThreadSanitizer would report";
#endif
  for (const LeftOut left_out : {LeftOut::waits, LeftOut::record_stream}) {
    int wrong = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed)
      wrong += run("random:" + std::to_string(seed), seed, 3000, left_out);
    EXPECT_GT(wrong, 0) << (left_out == LeftOut::waits ? "waits" : "record_stream");
  }
}

}  // namespace
}  // namespace mojo::test
