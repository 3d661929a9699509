// A device with one queue and no events, as the single-queue profile of the host device is.
#include "conformance/driver_under_test.h"

namespace mojo::conformance {
namespace {

class SingleQueue : public Conformance {
 protected:
  void SetUp() override { device = open(); }
  std::unique_ptr<driver::Device> device;
};

std::vector<DriverUnderTest> single_queue_drivers() {
  const auto make = [](std::string schedule) {
    host::HostOptions options = host_options(2, std::move(schedule));
    options.single_queue = true;
    return host::make_host_driver(options);
  };
  return {{"host", [=] { return make("fifo"); }},
          {"host_random", [=] { return make("random:3"); }},
          {"checked", [=] { return layers::make_checked(make("fifo")); }}};
}
INSTANTIATE_TEST_SUITE_P(Drivers, SingleQueue, testing::ValuesIn(single_queue_drivers()), name_of);

TEST_P(SingleQueue, SaysWhatItCannot) {
  const auto capabilities = device->capabilities();
  EXPECT_FALSE(capabilities.has(driver::Capability::events));
  EXPECT_FALSE(capabilities.has(driver::Capability::multiple_queues));
  EXPECT_FALSE(capabilities.has(driver::Capability::async_host_copies));
  EXPECT_TRUE(capabilities.has(driver::Capability::host_functions));
}

TEST_P(SingleQueue, HasNoEvents) {
  std::unique_ptr<driver::Event> out;
  const Status status = device->create_event({}, out);
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_EQ(status.message(), "events are not supported on the single-queue host device");
}

TEST_P(SingleQueue, EveryQueueIsTheSame) {
  auto a = queue(*device), b = queue(*device, {.priority = -2});
  EXPECT_EQ(a->native_handle(), b->native_handle());
  EXPECT_EQ(a->priority(), b->priority());
  std::vector<int> order;
  for (int i = 0; i < 100; ++i) run(i % 2 == 0 ? *a : *b, [&order, i] { order.push_back(i); });
  MOJO_OK(a->synchronize());
  ASSERT_EQ(order.size(), 100u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  b.reset();  // the others live on
  run(*a, [&] { order.clear(); });
  MOJO_OK(a->synchronize());
  EXPECT_TRUE(order.empty());
}

TEST_P(SingleQueue, QueryWaitsAndSaysYes) {
  auto q = queue(*device);
  Blocker blocker;
  MOJO_OK(q->host_task(task_of([&] { return blocker(); }), {}, tag()));
  std::thread releaser([&] {
    blocker.wait_until_running();
    blocker.release();
  });
  bool complete = false;
  MOJO_OK(q->query(complete));
  EXPECT_TRUE(complete);
  releaser.join();
}

TEST_P(SingleQueue, UploadsAreCompleteWhenTheyReturn) {
  auto q = queue(*device);
  DevicePtr ptr;
  MOJO_OK(device->allocate(1024, ptr));
  void* pinned = nullptr;
  MOJO_OK(device->allocate_pinned(1024, pinned));
  std::fill_n(static_cast<char*>(pinned), 1024, 'x');
  driver::Copy copy;
  copy.kind = driver::CopyKind::host_to_device;
  copy.dst = ptr;
  copy.host_src = pinned;
  copy.bytes = 1024;
  MOJO_OK(q->copy(copy, tag()));
  EXPECT_EQ(static_cast<const char*>(ptr.opaque())[1023], 'x');
  MOJO_OK(device->free(ptr));
  MOJO_OK(device->free_pinned(pinned));
}

TEST_P(SingleQueue, FailuresGoToTheQueueInUse) {
  Failures failures;
  auto q = queue(*device, {.failures = &failures});
  MOJO_OK(q->host_task(task_of([] { return Status(StatusCode::task_failed, "no"); }), {}, tag()));
  MOJO_OK(q->synchronize());
  EXPECT_EQ(failures.seen().size(), 1u);
}

}  // namespace
}  // namespace mojo::conformance
