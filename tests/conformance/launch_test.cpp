// What device functions compute when they are launched, and in which order, of every driver that has them.
#include <cmath>
#include <numeric>

#include "conformance/launch_fixture.h"

namespace mojo::conformance {
namespace {

INSTANTIATE_TEST_SUITE_P(Drivers, Launches, testing::ValuesIn(full_drivers()), name_of);
INSTANTIATE_TEST_SUITE_P(ManyWorkers, Launches,
                         testing::Values(DriverUnderTest{"host_16_workers",
                                                         [] { return host::make_host_driver(host_options(16)); }}),
                         name_of);

TEST_P(Launches, AStrideLoopCoversTheRangeWhateverTheGridAndBlock) {
  auto k = kernel(scale_source, "scale");
  const unsigned n = 1000;
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 1.0f);
  const Buffer x = buffer<float>(n), y = buffer<float>(n);
  upload(x, values);
  for (const auto& [grid, block] :
       std::vector<std::pair<unsigned, unsigned>>{{1, 1}, {1, 7}, {4, 256}, {3, 64}, {1000, 1}}) {
    upload(y, std::vector<float>(n, -1.0f));
    MOJO_OK(launch(*k, {grid}, {block}, 0, x, y, 2.0f, n));
    const auto got = download<float>(y);
    for (unsigned i = 0; i < n; ++i) ASSERT_EQ(got[i], 2.0f * values[i]) << i << ' ' << grid << ' ' << block;
  }
}

TEST_P(Launches, IndicesOfThreeDimensions) {
  auto k = kernel(R"(
extern "C" MOJO_KERNEL void mark(mojo::Buffer<unsigned> out) {
  using namespace mojo;
  const unsigned width = block_count() * block_size(), height = block_count(y) * block_size(y);
  const auto at = (global_index(mojo::z) * height + global_index(mojo::y)) * width + global_index();
  out[at] = block_index() + 10 * block_index(y) + 100 * block_index(z) +
            1000 * (thread_index() + 10 * thread_index(y) + 100 * thread_index(z));
}
)",
                  "mark");
  const Buffer out = buffer<unsigned>(2 * 3 * 2 * 4 * 3 * 2);
  MOJO_OK(launch(*k, {2, 3, 2}, {4, 3, 2}, 0, out));
  const auto got = download<unsigned>(out);
  const unsigned width = 8, height = 9;
  for (unsigned z = 0; z < 4; ++z) {
    for (unsigned y = 0; y < height; ++y) {
      for (unsigned x = 0; x < width; ++x) {
        const unsigned block = x / 4 + 10 * (y / 3) + 100 * (z / 2), thread = x % 4 + 10 * (y % 3) + 100 * (z % 2);
        ASSERT_EQ(got[(z * height + y) * width + x], block + 1000 * thread) << x << ' ' << y << ' ' << z;
      }
    }
  }
}

// Each thread reads what others of its block have written: wrong unless barriers are right and each block has its own.
constexpr const char* reverse_source = R"(
extern "C" MOJO_KERNEL void reverse(mojo::Buffer<int> data) {
  MOJO_SHARED int slots[1024];
  int* dynamic = mojo::shared_memory<int>();
  const unsigned me = mojo::linear_thread_index(), size = mojo::linear_block_size();
  const unsigned block = mojo::block_index();
  for (int round = 0; round < 3; ++round) {
    slots[me] = data[block * size + me];
    mojo::barrier();
    dynamic[me] = slots[size - 1 - me] + 1;
    mojo::barrier();
    data[block * size + me] = dynamic[(me + 1) % size];
    mojo::barrier();
  }
}
)";

TEST_P(Launches, BarriersAndSharedMemoryAtAnyBlockSize) {
  auto k = kernel(reverse_source, "reverse");
  const std::vector<driver::Dim3> blocks{{1},       {2},       {3}, {31}, {32}, {64}, {100}, {largest_block},
                                         {8, 4, 2}, {1, 1, 64}};
  for (const driver::Dim3 block : blocks) {
    const unsigned size = block.x * block.y * block.z, grid = 5;
    std::vector<int> expected(grid * size);
    std::iota(expected.begin(), expected.end(), 0);
    const Buffer data = buffer<int>(expected.size());
    upload(data, expected);
    MOJO_OK(launch(*k, {grid}, block, size * sizeof(int), data));
    for (unsigned b = 0; b < grid; ++b) {
      for (int round = 0; round < 3; ++round) {
        std::vector<int> dynamic(size);
        for (unsigned i = 0; i < size; ++i) dynamic[i] = expected[b * size + size - 1 - i] + 1;
        for (unsigned i = 0; i < size; ++i) expected[b * size + i] = dynamic[(i + 1) % size];
      }
    }
    ASSERT_EQ(download<int>(data), expected) << size;
  }
}

TEST_P(Launches, ReductionsAgreeAtAnyBlockSize) {
  auto k = kernel(R"(
extern "C" MOJO_KERNEL void reduce(mojo::Buffer<float> sums, mojo::Buffer<int> least, mojo::Buffer<int> most) {
  const int value = static_cast<int>(mojo::global_index()) % 97 - 40;
  const float sum = mojo::block_sum(static_cast<float>(value));
  const int low = mojo::block_min(value), high = mojo::block_max(value);
  sums[mojo::global_index()] = sum;  // every thread has the result
  least[mojo::global_index()] = low;
  most[mojo::global_index()] = high;
}
)",
                  "reduce");
  for (const unsigned block : {1u, 2u, 5u, 64u, 127u, largest_block}) {
    const unsigned grid = 3;
    const Buffer sums = buffer<float>(grid * block), least = buffer<int>(grid * block),
                 most = buffer<int>(grid * block);
    MOJO_OK(launch(*k, {grid}, {block}, 0, sums, least, most));
    const auto got_sums = download<float>(sums);
    const auto got_least = download<int>(least), got_most = download<int>(most);
    for (unsigned i = 0; i < grid * block; ++i) {
      float sum = 0;
      int low = 1000, high = -1000;
      for (unsigned j = i / block * block; j < (i / block + 1) * block; ++j) {
        const int value = static_cast<int>(j) % 97 - 40;
        sum += static_cast<float>(value);  // exact
        low = std::min(low, value);
        high = std::max(high, value);
      }
      ASSERT_EQ(got_sums[i], sum);
      ASSERT_EQ(got_least[i], low);
      ASSERT_EQ(got_most[i], high);
    }
  }
}

TEST_P(Launches, ThreadsThatReturnEarlyAreNotWaitedFor) {
  auto k = kernel(R"(
extern "C" MOJO_KERNEL void some(mojo::Buffer<int> out) {
  const unsigned me = mojo::thread_index();
  if (me % 2 == 1) return;
  MOJO_SHARED int total;
  if (me == 0) total = 0;
  mojo::barrier();
  mojo::atomic_add(&total, 1);
  mojo::barrier();
  out[me / 2] = total;
}
)",
                  "some");
  const Buffer out = buffer<int>(32);
  MOJO_OK(launch(*k, {1}, {64}, 0, out));
  EXPECT_EQ(download<int>(out), std::vector<int>(32, 32));
}

TEST_P(Launches, AtomicsAreWholeAcrossTheGrid) {
  auto k = kernel(R"(
extern "C" MOJO_KERNEL void count(mojo::Buffer<int> ints, mojo::Buffer<float> floats, mojo::Buffer<unsigned long long> longs) {
  const int i = static_cast<int>(mojo::global_index());
  mojo::atomic_add(&ints[0], 1);
  mojo::atomic_max(&ints[1], i);
  mojo::atomic_min(&ints[2], -i);
  mojo::atomic_exchange(&ints[3], 7);
  mojo::atomic_compare_exchange(&ints[4], 0, 9);
  mojo::atomic_add(&floats[0], 1.0f);
  mojo::atomic_max(&floats[1], static_cast<float>(i));
  mojo::atomic_add(&longs[0], 1ull << 33);
}
)",
                  "count");
  const Buffer ints = buffer<int>(5), floats = buffer<float>(2), longs = buffer<std::uint64_t>(1);
  upload(ints, std::vector<int>(5, 0));
  upload(floats, std::vector<float>(2, 0));
  upload(longs, std::vector<std::uint64_t>(1, 0));
  const int n = 200 * 128;
  MOJO_OK(launch(*k, {200}, {128}, 0, ints, floats, longs));
  EXPECT_EQ(download<int>(ints), (std::vector<int>{n, n - 1, 1 - n, 7, 9}));
  EXPECT_EQ(download<float>(floats), (std::vector<float>{float(n), float(n - 1)}));
  EXPECT_EQ(download<std::uint64_t>(longs)[0], std::uint64_t(n) << 33);
}

TEST_P(Launches, ArgumentsAreCopiedAtTheCallAndTheKernelMayGo) {
  auto k = kernel(R"(
struct Pair { double a; short b; };
extern "C" MOJO_KERNEL void store(mojo::Buffer<double> out, char c, Pair p, bool flag, unsigned long long big) {
  out[0] = c; out[1] = p.a; out[2] = p.b; out[3] = flag; out[4] = static_cast<double>(big);
}
)",
                  "store");
  struct Pair {
    double a;
    short b;
  };
  const Buffer out = buffer<double>(5);
  {
    Gate gate(*device_);
    gate.hold(*queue_, tag());
    Pair pair{1.5, -3};
    std::uint64_t big = std::uint64_t{1} << 40;
    MOJO_OK(launch(*k, {1}, {1}, 0, out, char{5}, pair, true, big));
    k.reset();  // and its image with it, if the launch did not hold it
  }
  EXPECT_EQ(download<double>(out), (std::vector<double>{5, 1.5, -3, 1, std::pow(2.0, 40)}));
}

TEST_P(Launches, ManyArguments) {
  std::string parameters, sum;
  for (int i = 0; i < 100; ++i) {
    parameters += ", mojo::Buffer<const int> p" + std::to_string(i);
    sum += " + p" + std::to_string(i) + "[0]";
  }
  auto k = kernel(
      "extern \"C\" MOJO_KERNEL void sum(mojo::Buffer<int> out" + parameters + ") { out[0] = 0" + sum + "; }", "sum");
  const Buffer out = buffer<int>(1), one = buffer<int>(1);
  upload(one, std::vector<int>{3});
  std::vector<const void*> pointers(101, &one);
  pointers[0] = &out;
  const std::vector<std::uint32_t> sizes(101, 16);
  driver::Launch l;
  l.kernel = k.get();
  l.arguments = pointers;
  l.argument_sizes = sizes;
  MOJO_OK(queue_->launch(l, tag()));
  EXPECT_EQ(download<int>(out)[0], 300);
}

TEST_P(Launches, LaunchesKeepTheirPlaceInTheOrder) {
  auto k = kernel(R"(
extern "C" MOJO_KERNEL void step(mojo::Buffer<unsigned> data, unsigned factor, unsigned add) {
  for (auto i : mojo::stride(data.size())) data[i] = data[i] * factor + add;
}
)",
                  "step");
  const Buffer data = buffer<unsigned>(20000);
  upload(data, std::vector<unsigned>(20000, 1));
  unsigned expected = 1;
  for (unsigned i = 0; i < 50; ++i) {
    MOJO_OK(launch(*k, {79}, {256}, 0, data, 3u, i));
    expected = expected * 3 + i;
  }
  EXPECT_EQ(download<unsigned>(data), std::vector<unsigned>(20000, expected));
}

TEST_P(Launches, AQueueThatWaitsIsServedBetweenTheBlocksOfALargeLaunch) {
  // More blocks than anybody could run while the test lasts, unless it says stop: which it does on another queue.
  if (GetParam().name.find("random") != std::string::npos) GTEST_SKIP() << "one executor runs everything in order";
  driver::DeviceProperties properties;
  MOJO_OK(device_->properties(properties));
  if (properties.multiprocessor_count < 2) GTEST_SKIP() << "one worker";
  auto k = kernel(R"(
extern "C" MOJO_KERNEL void busy(mojo::Buffer<unsigned> stop) {
  for (int i = 0; i < 100000 && mojo::atomic_load(&stop[0]) == 0; ++i) {}
}
)",
                  "busy");
  const Buffer stop = buffer<unsigned>(1);
  upload(stop, std::vector<unsigned>{0});
  MOJO_OK(launch(*k, {1u << 22}, {64}, 0, stop));
  auto other = queue(*device_);
  driver::Fill fill{{stop.address}, 4, 1, 4};
  MOJO_OK(other->fill(fill, tag()));
  MOJO_OK(other->synchronize());
  MOJO_OK(queue_->synchronize());
}

TEST_P(Launches, ManySmallBlocksRunOnceEach) {
  auto k = kernel(R"(
extern "C" MOJO_KERNEL void count(mojo::Buffer<unsigned> counts) {
  mojo::atomic_add(&counts[mojo::block_index()], 1u);
}
)",
                  "count");
  for (const unsigned blocks : {10'000u, 300'000u}) {
    const Buffer counts = buffer<unsigned>(blocks);
    upload(counts, std::vector<unsigned>(blocks, 0));
    MOJO_OK(launch(*k, {blocks}, {1}, 0, counts));
    EXPECT_EQ(download<unsigned>(counts), std::vector<unsigned>(blocks, 1));
  }
}

// Larger than the stack that a thread has where there are barriers.
TEST_P(Launches, AThreadOfAKernelWithoutBarriersMayKeepALargeArray) {
  auto k = kernel(R"(
extern "C" MOJO_KERNEL void large(mojo::Buffer<float> x, unsigned step) {
  float t[40000];
  const unsigned me = mojo::global_index();
  for (unsigned i = 0; i < 40000; ++i) t[i] = static_cast<float>(i + me);
  x[me] = t[39999 - me * step];
}
)",
                  "large");
  const Buffer x = buffer<float>(64);
  MOJO_OK(launch(*k, {4}, {16}, 0, x, 3u));
  const auto got = download<float>(x);
  for (unsigned i = 0; i < 64; ++i) ASSERT_EQ(got[i], static_cast<float>(39999 - 2 * i));
}

TEST_P(Launches, ShuttingDownEndsALaunchBetweenItsBlocks) {  // G-05
  if (!device_->capabilities().has(driver::Capability::host_accessible_memory)) GTEST_SKIP() << "cannot look inside";
  auto k = kernel(R"(
extern "C" MOJO_KERNEL void forever(mojo::Buffer<unsigned long long> ran) {
  for (int i = 0; i < 1000; ++i) mojo::atomic_load(&ran[0]);
  mojo::atomic_add(&ran[0], 1ull);
}
)",
                  "forever");
  const Buffer ran = buffer<std::uint64_t>(1);
  upload(ran, std::vector<std::uint64_t>{0});
  Failures failures;
  driver::QueueOptions options;
  options.failures = &failures;
  queue_ = queue(*device_, options);
  MOJO_OK(launch(*k, {1u << 30, 65535}, {1}, 0, ran));  // centuries
  std::atomic_ref<std::uint64_t> count(*reinterpret_cast<std::uint64_t*>(ran.address));
  for (bool complete = false; count.load() == 0;) MOJO_OK(queue_->query(complete));
  driver->shut_down();
  const std::uint64_t then = count.load();  // all workers have ended
  EXPECT_EQ(count.load(), then);
  ASSERT_EQ(failures.seen().size(), 1U);
  EXPECT_EQ(failures.seen()[0].second.code(), StatusCode::shut_down);
  queue_.reset();
}

}  // namespace
}  // namespace mojo::conformance
