// Values that queues wait for and hosts signal.
#include "conformance/driver_under_test.h"

namespace mojo::conformance {
namespace {

class Values : public Conformance {
 protected:
  void SetUp() override {
    device = open();
    ASSERT_TRUE(device->allocate_value(value).ok());
  }
  void TearDown() override {
    if (value != nullptr) {
      EXPECT_TRUE(device->free_value(value).ok());
    }
  }
  std::unique_ptr<driver::Device> device;
  std::uint64_t* value = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Drivers, Values, testing::ValuesIn(full_drivers()), name_of);

TEST_P(Values, HoldTheirQueueAlone) {  // D-06
  auto held = queue(*device), q = queue(*device);
  bool ran = false;
  MOJO_OK(held->wait_value(value, 7, tag()));
  run(*held, [&] { ran = true; });
  run(*q, [] {});
  MOJO_OK(q->synchronize());
  EXPECT_FALSE(ran);
  MOJO_OK(device->signal_value(value, 6));
  bool complete = true;
  MOJO_OK(held->query(complete));
  EXPECT_FALSE(complete);
  MOJO_OK(device->signal_value(value, 7));
  MOJO_OK(held->synchronize());
  EXPECT_TRUE(ran);
}

TEST_P(Values, AreZeroAtFirstAndAlreadyReachedDoesNotWait) {
  auto q = queue(*device);
  MOJO_OK(q->wait_value(value, 0, tag()));
  MOJO_OK(q->synchronize());
  MOJO_OK(device->signal_value(value, 5));
  MOJO_OK(q->wait_value(value, 5, tag()));
  MOJO_OK(q->synchronize());
}

TEST_P(Values, AreSignalledFromAnotherThreadWhileAHostWaits) {  // D-06
  auto q = queue(*device);
  MOJO_OK(q->wait_value(value, 1, tag()));
  std::thread signaller([&] { EXPECT_TRUE(device->signal_value(value, 1).ok()); });
  MOJO_OK(q->synchronize());
  signaller.join();
}

TEST_P(Values, AreWrittenInQueueOrder) {
  auto writer = queue(*device), waiter = queue(*device);
  int number = 0, seen = -1;
  Gate gate(*device);
  gate.hold(*writer, tag());
  MOJO_OK(waiter->wait_value(value, 3, tag()));
  run(*waiter, [&] { seen = number; });
  run(*writer, [&] { number = 8; });
  MOJO_OK(writer->write_value(value, 3, tag()));
  gate.open();
  MOJO_OK(waiter->synchronize());
  EXPECT_EQ(seen, 8);
}

TEST_P(Values, HoldMoreQueuesThanThereAreWorkers) {
  std::vector<std::unique_ptr<driver::Queue>> queues;
  std::atomic<int> ran{0};
  for (int i = 0; i < 50; ++i) {
    queues.push_back(queue(*device));
    MOJO_OK(queues.back()->wait_value(value, i % 2 == 0 ? 1 : 2, tag()));
    run(*queues.back(), [&] { ran.fetch_add(1); });
  }
  MOJO_OK(device->signal_value(value, 1));
  for (std::size_t i = 0; i < 50; i += 2) MOJO_OK(queues[i]->synchronize());
  EXPECT_EQ(ran, 25);
  MOJO_OK(device->signal_value(value, 2));
  for (auto& q : queues) MOJO_OK(q->synchronize());
  EXPECT_EQ(ran, 50);
}

TEST_P(Values, AbandoningFailsEveryWaitAndTheQueueGoesOn) {
  Failures failures;
  auto held = queue(*device, {.failures = &failures}), later = queue(*device, {.failures = &failures});
  Gate gate(*device);
  const std::uint64_t first = tag(), second = tag() + 1;
  MOJO_OK(held->wait_value(value, 1, first));
  bool ran = false;
  MOJO_OK(held->host_task(task_of([&] {
                            ran = true;
                            return Status();
                          }),
                          {}, second + 1));
  gate.hold(*later, second + 2);
  MOJO_OK(later->wait_value(value, 1, second + 3));  // not reached yet
  MOJO_OK(device->abandon_value(value, Status(StatusCode::failed_precondition, "the flag is gone")));
  MOJO_OK(held->synchronize());
  EXPECT_TRUE(ran);
  gate.open();
  MOJO_OK(later->synchronize());
  const auto seen = failures.seen();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].first, first);
  EXPECT_EQ(seen[0].second.message(), "the flag is gone");
  EXPECT_EQ(seen[1].first, second + 3);
}

TEST_P(Values, FreeingFailsTheWaitsToo) {
  Failures failures;
  auto q = queue(*device, {.failures = &failures});
  MOJO_OK(q->wait_value(value, 1, tag()));
  MOJO_OK(device->free_value(std::exchange(value, nullptr)));
  MOJO_OK(q->synchronize());
  EXPECT_EQ(failures.seen().size(), 1u);
}

TEST_P(Values, UnknownAddressesAreRefused) {
  auto q = queue(*device);
  alignas(64) std::uint64_t mine[16] = {};
  EXPECT_EQ(q->wait_value(mine, 1, tag()).code(), StatusCode::invalid_argument);
  EXPECT_EQ(q->write_value(nullptr, 1, tag()).code(), StatusCode::invalid_argument);
  EXPECT_EQ(device->signal_value(mine, 1).code(), StatusCode::invalid_argument);
  EXPECT_EQ(device->free_value(mine + 1).code(), StatusCode::invalid_argument);
}

TEST_P(Values, ArePlentyAndReused) {
  std::vector<std::uint64_t*> all;
  for (int i = 0; i < 100; ++i) {
    std::uint64_t* v = nullptr;
    MOJO_OK(device->allocate_value(v));
    MOJO_OK(device->signal_value(v, 9));
    all.push_back(v);
  }
  for (auto* v : all) MOJO_OK(device->free_value(v));
  std::uint64_t* again = nullptr;
  MOJO_OK(device->allocate_value(again));
  auto q = queue(*device);
  MOJO_OK(q->wait_value(again, 0, tag()));  // zero again, whatever it held before
  MOJO_OK(q->synchronize());
  MOJO_OK(device->free_value(again));
}

}  // namespace
}  // namespace mojo::conformance
