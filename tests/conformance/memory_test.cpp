// Memory, copies and fills of any driver.
#include <cstring>

#include "conformance/driver_under_test.h"

namespace mojo::conformance {
namespace {

using driver::Copy;
using driver::CopyKind;

class Memory : public Conformance {
 protected:
  void SetUp() override { device = open(); }

  DevicePtr allocate(driver::Device& on, std::uint64_t bytes) {
    DevicePtr ptr;
    const Status status = on.allocate(bytes, ptr);
    EXPECT_TRUE(status.ok()) << status.message();
    return ptr;
  }
  void* pin(std::uint64_t bytes) {
    void* ptr = nullptr;
    EXPECT_TRUE(device->allocate_pinned(bytes, ptr).ok());
    return ptr;
  }
  static Copy upload(DevicePtr dst, const void* src, std::uint64_t bytes, bool pageable) {
    Copy copy;
    copy.kind = CopyKind::host_to_device;
    copy.dst = dst;
    copy.host_src = src;
    copy.bytes = bytes;
    copy.host_pageable = pageable;
    return copy;
  }
  static Copy download(void* dst, DevicePtr src, std::uint64_t bytes, bool pageable) {
    Copy copy;
    copy.kind = CopyKind::device_to_host;
    copy.src = src;
    copy.host_dst = dst;
    copy.bytes = bytes;
    copy.host_pageable = pageable;
    return copy;
  }
  std::unique_ptr<driver::Device> device;
};
INSTANTIATE_TEST_SUITE_P(Drivers, Memory, testing::ValuesIn(full_drivers()), name_of);

TEST_P(Memory, CountsWhatIsAllocated) {
  driver::MemoryInfo before, during, after;
  MOJO_OK(device->memory_info(before));
  EXPECT_EQ(before.free, before.total);
  const DevicePtr ptr = allocate(*device, 3 << 20);
  EXPECT_TRUE(ptr);
  EXPECT_EQ(ptr.address % 256, 0u);
  MOJO_OK(device->memory_info(during));
  EXPECT_LE(during.free, before.free - (3 << 20));
  MOJO_OK(device->free(ptr));
  MOJO_OK(device->memory_info(after));
  EXPECT_EQ(after.free, before.free);
}

TEST_P(Memory, OutOfMemorySaysTheNumbersAndTheNextThatFitsSucceeds) {  // M-07
  driver::MemoryInfo info;
  MOJO_OK(device->memory_info(info));
  DevicePtr ptr;
  const Status status = device->allocate(info.total + 1, ptr);
  EXPECT_EQ(status.code(), StatusCode::out_of_memory);
  EXPECT_THAT(status.message(), testing::HasSubstr(std::to_string(info.total + 1)));
  EXPECT_THAT(status.message(), testing::HasSubstr(std::to_string(info.total)));
  EXPECT_FALSE(ptr);
  EXPECT_EQ(device->allocate(~std::uint64_t{0}, ptr).code(), StatusCode::out_of_memory);
  ptr = allocate(*device, info.total / 2);
  DevicePtr none{1};
  EXPECT_EQ(device->allocate(info.total, none).code(), StatusCode::out_of_memory);
  EXPECT_FALSE(none);
  MOJO_OK(device->memory_info(info));
  EXPECT_LE(info.free, info.total / 2);
  MOJO_OK(device->free(ptr));
}

TEST_P(Memory, RoundingNeverExceedsTheCapacity) {
  driver::MemoryInfo info;
  MOJO_OK(device->memory_info(info));
  const DevicePtr all = allocate(*device, info.total - 100);
  MOJO_OK(device->memory_info(info));
  EXPECT_LE(info.free, info.total);
  EXPECT_LE(info.free, 100u);
  DevicePtr ptr;
  EXPECT_EQ(device->allocate(4096, ptr).code(), StatusCode::out_of_memory);
  MOJO_OK(device->free(all));
}

TEST_P(Memory, NothingIsAllocatedAndFreedAsNull) {
  DevicePtr ptr{1};
  MOJO_OK(device->allocate(0, ptr));
  EXPECT_FALSE(ptr);
  MOJO_OK(device->free({}));
  MOJO_OK(device->free_pinned(nullptr));
}

TEST_P(Memory, FreeingTwiceOrAnotherDevicesIsRefused) {
  auto second = open(1);
  const DevicePtr ptr = allocate(*device, 4096);
  EXPECT_EQ(second->free(ptr).code(), StatusCode::invalid_argument);
  EXPECT_EQ(device->free(ptr + 64).code(), StatusCode::invalid_argument);
  MOJO_OK(device->free(ptr));
  EXPECT_EQ(device->free(ptr).code(), StatusCode::invalid_argument);
  void* pinned = pin(100);
  MOJO_OK(device->free_pinned(pinned));
  EXPECT_EQ(device->free_pinned(pinned).code(), StatusCode::invalid_argument);
}

TEST_P(Memory, PinnedCopiesRoundTripAndAreQueued) {  // C-01, C-03
  auto q = queue(*device);
  constexpr std::uint64_t bytes = 1 << 20;
  auto* source = static_cast<unsigned char*>(pin(bytes));
  auto* target = static_cast<unsigned char*>(pin(bytes));
  const DevicePtr ptr = allocate(*device, bytes);
  std::memset(target, 0, bytes);
  {
    Gate gate(*device);
    gate.hold(*q, tag());
    MOJO_OK(q->copy(upload(ptr, source, bytes, false), tag()));
    MOJO_OK(q->copy(download(target, ptr, bytes, false), tag()));
    // The source is read when the copy runs.
    for (std::uint64_t i = 0; i < bytes; ++i) source[i] = static_cast<unsigned char>(i * 7);
    EXPECT_EQ(target[100], 0);
  }
  MOJO_OK(q->synchronize());
  EXPECT_EQ(std::memcmp(source, target, bytes), 0);
  MOJO_OK(device->free(ptr));
  MOJO_OK(device->free_pinned(source));
  MOJO_OK(device->free_pinned(target));
}

TEST_P(Memory, PageableCopiesAreDoneWithTheHostMemoryAtReturn) {  // C-02, C-04
  auto q = queue(*device);
  const DevicePtr ptr = allocate(*device, 4096);
  std::vector<unsigned char> source(4096, 3), target(4096);
  MOJO_OK(q->copy(upload(ptr, source.data(), 4096, true), tag()));
  std::fill(source.begin(), source.end(), 9);
  MOJO_OK(q->copy(download(target.data(), ptr, 4096, true), tag()));
  EXPECT_THAT(target, testing::Each(3));
  MOJO_OK(device->free(ptr));
}

TEST_P(Memory, CopiesBetweenDevices) {  // C-12
  auto second = open(1);
  MOJO_OK(device->enable_peer(*second));
  auto q = queue(*device);
  const DevicePtr from = allocate(*device, 1000), to = allocate(*second, 1000);
  std::vector<unsigned char> out(1000);
  MOJO_OK(q->fill({from, 1000, 0xAB, 1}, tag()));
  Copy copy;
  copy.dst = to;
  copy.src = from;
  copy.bytes = 1000;
  copy.dst_device = 1;
  copy.src_device = 0;
  MOJO_OK(q->copy(copy, tag()));
  MOJO_OK(q->synchronize());
  auto q1 = queue(*second);
  MOJO_OK(q1->copy(download(out.data(), to, 1000, true), tag()));
  EXPECT_THAT(out, testing::Each(0xAB));
  MOJO_OK(device->free(from));
  MOJO_OK(second->free(to));
}

TEST_P(Memory, FillsRepeatPatternsOfEveryWidth) {
  auto q = queue(*device);
  constexpr std::uint64_t bytes = 40'000;
  const DevicePtr ptr = allocate(*device, bytes);
  std::vector<unsigned char> out(bytes);
  const std::uint64_t pattern = 0x8877665544332211u;
  for (const std::uint8_t width : {1, 2, 4, 8}) {
    for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{1000}}) {
      MOJO_OK(q->fill({ptr, bytes, 0xEE, 1}, tag()));
      MOJO_OK(q->fill({ptr + offset, bytes - 2 * offset, pattern, width}, tag()));
      MOJO_OK(q->copy(download(out.data(), ptr, bytes, true), tag()));
      const auto* unit = reinterpret_cast<const unsigned char*>(&pattern);
      for (std::uint64_t i = 0; i < bytes; ++i) {
        const bool inside = i >= offset && i < bytes - offset;
        ASSERT_EQ(out[i], inside ? unit[(i - offset) % width] : 0xEE) << "byte " << i << " width " << int{width};
      }
    }
  }
  MOJO_OK(q->fill({ptr, 0, 0, 1}, tag()));  // keeps its place and does nothing
  EXPECT_EQ(q->fill({ptr, 10, 0, 4}, tag()).code(), StatusCode::invalid_argument);
  EXPECT_EQ(q->fill({ptr, 12, 0, 3}, tag()).code(), StatusCode::invalid_argument);
  MOJO_OK(q->synchronize());
  MOJO_OK(device->free(ptr));
}

TEST_P(Memory, HostTasksSeeDeviceMemory) {
  if (!device->capabilities().has(driver::Capability::host_accessible_memory)) GTEST_SKIP();
  auto q = queue(*device);
  const DevicePtr ptr = allocate(*device, 64);
  MOJO_OK(q->fill({ptr, 64, 5, 1}, tag()));
  int sum = 0;
  run(*q, [&] {
    for (int i = 0; i < 64; ++i) sum += static_cast<unsigned char*>(ptr.opaque())[i];
  });
  MOJO_OK(q->synchronize());
  EXPECT_EQ(sum, 320);
  MOJO_OK(device->free(ptr));
}

TEST_P(Memory, PropertiesAndDeviceCount) {
  int count = 0;
  MOJO_OK(driver->device_count(count));
  EXPECT_EQ(count, 2);
  driver::DeviceProperties properties;
  MOJO_OK(device->properties(properties));
  EXPECT_FALSE(properties.name.empty());
  EXPECT_EQ(properties.total_memory, std::uint64_t{64} << 20);
  EXPECT_GT(properties.multiprocessor_count, 0);
  std::unique_ptr<driver::Device> none;
  const Status status = driver->open(2, none);
  EXPECT_EQ(status.code(), StatusCode::out_of_range);
  EXPECT_THAT(status.message(), testing::HasSubstr("2"));
}

TEST_P(Memory, UnknownOptionsAreRefused) {
  EXPECT_EQ(device->set_option("colour", "red").code(), StatusCode::unsupported);
}

}  // namespace
}  // namespace mojo::conformance
