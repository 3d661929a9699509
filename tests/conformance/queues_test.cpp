// Queues of any driver: order, progress, host waits, failures, priorities.
#include "conformance/driver_under_test.h"

namespace mojo::conformance {
namespace {

using testing::ElementsAre;

using Queues = Conformance;
INSTANTIATE_TEST_SUITE_P(Drivers, Queues, testing::ValuesIn(full_drivers()), name_of);

TEST_P(Queues, RunInTheOrderOfTheCalls) {  // O-02
  auto device = open();
  auto q = queue(*device);
  std::vector<int> order;
  for (int i = 0; i < 500; ++i) run(*q, [&order, i] { order.push_back(i); });
  MOJO_OK(q->synchronize());
  ASSERT_EQ(order.size(), 500u);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_P(Queues, EnqueueReturnsBeforeTheWorkRuns) {  // O-01
  auto device = open();
  auto q = queue(*device);
  Gate gate(*device);
  gate.hold(*q, tag());
  std::atomic<bool> ran{false};
  run(*q, [&] { ran = true; });
  EXPECT_FALSE(ran);
  gate.open();
  MOJO_OK(q->synchronize());
  EXPECT_TRUE(ran);
}

TEST_P(Queues, AnEmptyQueueIsComplete) {
  auto device = open();
  auto q = queue(*device);
  bool complete = false;
  MOJO_OK(q->query(complete));
  EXPECT_TRUE(complete);
  MOJO_OK(q->synchronize());
}

TEST_P(Queues, QueryIsFalseWhileTheLastTaskRuns) {  // S-07
  auto device = open();
  auto q = queue(*device);
  Blocker blocker;
  MOJO_OK(q->host_task(task_of([&] { return blocker(); }), {}, tag()));
  bool complete = true;
  MOJO_OK(q->query(complete));
  EXPECT_FALSE(complete);
  // The random schedule starts it only when the host waits or asks.
  std::thread waiter([&] { EXPECT_TRUE(q->synchronize().ok()); });
  blocker.wait_until_running();
  MOJO_OK(q->query(complete));
  EXPECT_FALSE(complete);
  blocker.release();
  waiter.join();
  MOJO_OK(q->query(complete));
  EXPECT_TRUE(complete);
}

TEST_P(Queues, QueryComesTrueWithoutAWait) {  // S-07
  auto device = open();
  auto q = queue(*device);
  int value = 0;
  run(*q, [&] { value = 7; });
  for (bool complete = false; !complete;) MOJO_OK(q->query(complete));
  EXPECT_EQ(value, 7);  // and what it did is visible
}

TEST_P(Queues, SynchronizeWaitsForItsQueueAlone) {  // O-05
  auto device = open();
  auto held = queue(*device), q = queue(*device);
  Gate gate(*device);
  gate.hold(*held, tag());
  bool ran = false;
  run(*q, [&] { ran = true; });
  MOJO_OK(q->synchronize());
  EXPECT_TRUE(ran);
  bool complete = true;
  MOJO_OK(held->query(complete));
  EXPECT_FALSE(complete);
}

TEST_P(Queues, AHostWaitHoldsUpNoOtherThread) {  // O-07
  auto device = open();
  auto held = queue(*device), q = queue(*device);
  Gate gate(*device);
  gate.hold(*held, tag());
  std::thread waiter([&] { EXPECT_TRUE(held->synchronize().ok()); });
  for (int i = 0; i < 50; ++i) {
    run(*q, [] {});
    MOJO_OK(q->synchronize());
  }
  gate.open();
  waiter.join();
}

TEST_P(Queues, SeveralThreadsMayWaitForDifferentPlaces) {
  auto device = open();
  auto q = queue(*device);
  std::atomic<int> ran{0};
  std::vector<std::thread> waiters;
  for (int i = 1; i <= 8; ++i) {
    run(*q, [&] { ran.fetch_add(1); });
    waiters.emplace_back([&, i] {
      EXPECT_TRUE(q->synchronize().ok());
      EXPECT_GE(ran.load(), i);
    });
  }
  for (auto& waiter : waiters) waiter.join();
}

TEST_P(Queues, EnqueuesFromManyThreadsAllRun) {
  numbered = false;
  auto device = open();
  auto q = queue(*device), other = queue(*device);
  int count = 0;  // unguarded: one queue runs one task at a time
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        run(*q, [&] { ++count; });
        run(*other, [] {});
      }
    });
  }
  for (auto& thread : threads) thread.join();
  MOJO_OK(q->synchronize());
  MOJO_OK(other->synchronize());
  EXPECT_EQ(count, 1200);
}

TEST_P(Queues, AFailureIsToldBeforeTheWorkCountsAsComplete) {  // O-08
  Failures failures;
  auto device = open();
  auto q = queue(*device, {.failures = &failures});
  const std::uint64_t failing = tag();
  MOJO_OK(q->host_task(task_of([] { return Status(StatusCode::task_failed, "it broke"); }), {}, failing));
  bool later = false;
  run(*q, [&] { later = true; });
  MOJO_OK(q->synchronize());
  EXPECT_TRUE(later);
  const auto seen = failures.seen();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].first, failing);
  EXPECT_EQ(seen[0].second.message(), "it broke");
}

TEST_P(Queues, CompletedTagIsALowerBoundThatASynchronizeBringsUp) {
  auto device = open();
  auto q = queue(*device);
  Gate gate(*device);
  run(*q, [] {});
  gate.hold(*q, tag());
  const std::uint64_t last = tag();
  MOJO_OK(q->host_task(task_of([] { return Status(); }), {}, last));
  EXPECT_LT(q->completed_tag(), last);
  gate.open();
  MOJO_OK(q->synchronize());
  EXPECT_TRUE(q->completed_tag() == last || q->completed_tag() == 0) << q->completed_tag();
}

TEST_P(Queues, CallsFromInsideAHostTaskAreRefused) {  // D-05
  auto device = open();
  auto q = queue(*device), other = queue(*device);
  auto e = event(*device);
  std::uint64_t* value = nullptr;
  MOJO_OK(device->allocate_value(value));
  std::vector<StatusCode> codes;
  const std::uint64_t inner = tag() + 1'000'000;
  run(*q, [&] {
    codes = {other->host_task({[](void*) noexcept { return Status(); }}, {}, inner).code(),
             other->fill({}, inner + 1).code(), other->record(*e, inner + 2).code(), q->synchronize().code(),
             device->signal_value(value, 3).code()};  // this one is allowed
  });
  MOJO_OK(q->synchronize());
  const auto refused = StatusCode::failed_precondition;
  EXPECT_THAT(codes, ElementsAre(refused, refused, refused, refused, StatusCode::ok));
  MOJO_OK(device->free_value(value));
}

TEST_P(Queues, NativeHandlesAreStableAndDistinct) {  // S-09
  auto device = open();
  auto a = queue(*device), b = queue(*device);
  EXPECT_NE(a->native_handle(), nullptr);
  EXPECT_EQ(a->native_handle(), a->native_handle());
  EXPECT_NE(a->native_handle(), b->native_handle());
}

TEST_P(Queues, PrioritiesAreClamped) {  // S-05
  auto device = open();
  const auto range = device->priority_range();
  EXPECT_LE(range.greatest, range.least);
  EXPECT_EQ(queue(*device, {.priority = 1000})->priority(), range.least);
  EXPECT_EQ(queue(*device, {.priority = -1000})->priority(), range.greatest);
  EXPECT_EQ(queue(*device, {.priority = range.greatest})->priority(), range.greatest);
}

TEST_P(Queues, DestroyingABusyQueueDropsWhatHasNotRun) {
  auto device = open();
  auto q = queue(*device), other = queue(*device);
  auto e = event(*device);
  std::atomic<int> dropped{0}, ran{0};
  {
    Gate gate(*device);
    gate.hold(*q, tag());
    for (int i = 0; i < 5; ++i) {
      MOJO_OK(q->host_task(task_of(
                               [&] {
                                 ran.fetch_add(1);
                                 return Status();
                               },
                               &dropped),
                           {}, tag()));
    }
    MOJO_OK(q->record(*e, tag()));
    MOJO_OK(other->wait(*e, tag()));
    q.reset();
  }
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(dropped, 5);
  // Whoever waited for its records is not left behind.
  run(*other, [&] { ran.fetch_add(1); });
  MOJO_OK(other->synchronize());
  EXPECT_EQ(ran, 1);
  bool complete = false;
  MOJO_OK(e->query(complete));
  EXPECT_TRUE(complete);
}

TEST_P(Queues, DestroyingAQueueWaitsForItsRunningTask) {
  auto device = open();
  auto q = queue(*device);
  Blocker blocker;
  std::atomic<bool> finished{false};
  MOJO_OK(q->host_task(task_of([&] {
                         static_cast<void>(blocker());
                         finished = true;
                         return Status();
                       }),
                       {}, tag()));
  std::thread waiter([&] { static_cast<void>(q->synchronize()); });
  blocker.wait_until_running();
  std::thread releaser([&] { blocker.release(); });
  waiter.join();
  q.reset();
  EXPECT_TRUE(finished);
  releaser.join();
}

TEST_P(Queues, WhatADriverLacksSaysWhichDriverAndCall) {  // D-07
  auto device = open();
  auto q = queue(*device);
  const Status status = q->begin_capture();
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_THAT(status.message(), testing::HasSubstr("host driver does not support begin_capture"));
}

TEST_P(Queues, DelayKeepsTheQueueBusyAndHoldsNoThread) {
  auto device = open();
  std::vector<std::unique_ptr<driver::Queue>> sleepers;
  for (int i = 0; i < 20; ++i) {  // more than there are workers
    sleepers.push_back(queue(*device));
    MOJO_OK(sleepers.back()->delay(2'000'000, tag()));
  }
  auto q = queue(*device);
  bool ran = false;
  run(*q, [&] { ran = true; });
  MOJO_OK(q->synchronize());
  EXPECT_TRUE(ran);
  for (auto& sleeper : sleepers) MOJO_OK(sleeper->synchronize());
}

}  // namespace
}  // namespace mojo::conformance
