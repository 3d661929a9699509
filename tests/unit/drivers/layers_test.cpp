// What the layers find, count and log.
#include "conformance/driver_under_test.h"

namespace mojo::conformance {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

driver::HostTask nothing() {
  return {[](void*) noexcept { return Status(); }};
}

struct Checked : testing::Test, ConformanceBase {
  Checked()
      : ConformanceBase(layers::make_checked(host::make_host_driver(host_options(2)),
                                             [this](const std::string& line) { leaks.push_back(line); })) {}
  void SetUp() override {
    device = open();
    second = open(1);
    q = queue(*device);
    ASSERT_TRUE(device->allocate(1024, memory).ok());
  }
  static void expect(const Status& status, const char* text) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr(text));
  }
  std::vector<std::string> leaks;
  std::unique_ptr<driver::Device> device, second;
  std::unique_ptr<driver::Queue> q;
  DevicePtr memory;
};

TEST_F(Checked, RangesMustLieInLiveSegmentsOfTheDevice) {
  MOJO_OK(q->fill({memory, 1024, 0, 1}, tag()));
  MOJO_OK(q->fill({memory + 1000, 24, 0, 1}, tag()));
  expect(q->fill({memory + 1000, 25, 0, 1}, tag()), "25 bytes at offset 1000 of a segment of 1024");
  DevicePtr other;
  MOJO_OK(second->allocate(1024, other));
  expect(q->fill({other, 16, 0, 1}, tag()), "belongs to device 1");
  MOJO_OK(second->free(other));
  MOJO_OK(q->synchronize());
  MOJO_OK(device->free(memory));
  expect(q->fill({memory, 16, 0, 1}, tag()), "no live segment");
}

TEST_F(Checked, AccessesOfTasksAreCheckedToo) {
  const Access good{memory, 1024, AccessMode::read}, bad{memory + 1, 1024, AccessMode::write};
  MOJO_OK(q->host_task(nothing(), {&good, 1}, tag()));
  expect(q->host_task(nothing(), {&bad, 1}, tag()), "segment of 1024");
  expect(q->host_task({}, {}, tag()), "no function");
  MOJO_OK(q->synchronize());
}

TEST_F(Checked, HostSidesOfCopiesMustBePinnedUnlessTheySayPageable) {
  char mine[64] = {};
  driver::Copy copy;
  copy.kind = driver::CopyKind::host_to_device;
  copy.dst = memory;
  copy.host_src = mine;
  copy.bytes = 64;
  expect(q->copy(copy, tag()), "is not pinned");
  copy.host_pageable = true;
  MOJO_OK(q->copy(copy, tag()));
  void* pinned = nullptr;
  MOJO_OK(device->allocate_pinned(64, pinned));
  copy.kind = driver::CopyKind::device_to_host;
  copy.src = memory;
  copy.host_dst = static_cast<char*>(pinned) + 8;
  copy.host_pageable = false;
  expect(q->copy(copy, tag()), "pinned block of 64");
  copy.bytes = 56;
  MOJO_OK(q->copy(copy, tag()));
  MOJO_OK(q->synchronize());
  MOJO_OK(device->free_pinned(pinned));
}

TEST_F(Checked, FreesMustBeOfWhatLivesAndOnce) {
  expect(device->free(memory + 8), "no live segment");
  expect(second->free(memory), "belongs to device 0");
  MOJO_OK(device->free(memory));
  expect(device->free(memory), "freed twice");
  int on_the_stack = 0;
  expect(device->free_pinned(&on_the_stack), "pinned");
}

TEST_F(Checked, DestroyedEventsAreFound) {
  auto e = event(*device);
  driver::Event* const dangling = e.get();
  e.reset();
  expect(q->record(*dangling, tag()), "destroyed");
  expect(q->wait(*dangling, tag()), "destroyed");
}

TEST_F(Checked, TagsMustGrow) {
  const std::uint64_t one = tag();
  MOJO_OK(q->host_task(nothing(), {}, one));
  expect(q->host_task(nothing(), {}, one), "tag");
  MOJO_OK(q->host_task(nothing(), {}, tag()));
  MOJO_OK(q->synchronize());
}

TEST_F(Checked, TellsWhatADeviceLeavesBehind) {
  std::uint64_t* value = nullptr;
  MOJO_OK(device->allocate_value(value));
  auto e = event(*device);
  device.reset();
  EXPECT_THAT(leaks, ElementsAre(HasSubstr("1 segments (1024 bytes)"), HasSubstr("1 values"), HasSubstr("1 events"),
                                 HasSubstr("1 queues")));
  e.reset();
  q.reset();
  leaks.clear();
  second.reset();
  EXPECT_THAT(leaks, testing::IsEmpty());
}

TEST(Recorded, KeepsTheCallsWithTheirResults) {
  const auto log = std::make_shared<layers::CallLog>();
  ConformanceBase base(layers::make_recorded(host::make_host_driver(host_options(2)), log));
  auto device = base.open();
  auto a = base.queue(*device), b = base.queue(*device);
  auto e = base.event(*device);
  log->clear();
  MOJO_OK(a->host_task(nothing(), {}, 11));
  MOJO_OK(a->record(*e, 12));
  MOJO_OK(b->wait(*e, 13));
  EXPECT_FALSE(b->fill({{}, 3, 0, 2}, 14).ok());
  MOJO_OK(b->synchronize());
  EXPECT_THAT(log->names(), ElementsAre("host_task", "record", "wait", "fill", "synchronize"));
  const auto calls = log->calls();
  EXPECT_EQ(calls[1].info.queue, 0);
  EXPECT_EQ(calls[1].info.tag, 12u);
  EXPECT_EQ(calls[2].info.queue, 1);
  EXPECT_EQ(calls[1].info.address, calls[2].info.address);
  EXPECT_EQ(calls[3].info.bytes, 3u);
  EXPECT_EQ(calls[3].result, StatusCode::invalid_argument);
  EXPECT_EQ(log->count("wait"), 1u);
}

TEST(Faulty, FailsTheChosenCallOnceAndCounts) {
  const auto faults = std::make_shared<layers::Faults>();
  ConformanceBase base(layers::make_faulty(host::make_host_driver(host_options(2)), faults));
  auto device = base.open();
  auto q = base.queue(*device);
  faults->clear();
  faults->fail_nth(2, Status(StatusCode::internal, "second"));
  EXPECT_TRUE(q->synchronize().ok());
  EXPECT_EQ(q->synchronize().message(), "second");
  EXPECT_TRUE(q->synchronize().ok());
  faults->fail_nth_of("query", 1, Status(StatusCode::device_lost, "gone"));
  EXPECT_TRUE(q->synchronize().ok());
  bool complete = false;
  EXPECT_EQ(q->query(complete).code(), StatusCode::device_lost);
  EXPECT_EQ(faults->calls(), 5u);
  EXPECT_EQ(faults->calls_of("synchronize"), 4u);
  EXPECT_TRUE(faults->triggered());
}

}  // namespace
}  // namespace mojo::conformance
