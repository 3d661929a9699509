// Events of any driver: versions, waits within and across devices, lifetime, timing.
#include <random>

#include "conformance/driver_under_test.h"

namespace mojo::conformance {
namespace {

using Events = Conformance;
INSTANTIATE_TEST_SUITE_P(Drivers, Events, testing::ValuesIn(full_drivers()), name_of);

TEST_P(Events, NeverRecordedCountsAsComplete) {  // E-05
  auto device = open();
  auto q = queue(*device);
  auto e = event(*device);
  bool complete = false;
  MOJO_OK(e->query(complete));
  EXPECT_TRUE(complete);
  MOJO_OK(e->synchronize());
  MOJO_OK(q->wait(*e, tag()));
  MOJO_OK(q->synchronize());
}

TEST_P(Events, CompleteOnceTheWorkBeforeIsDone) {  // E-02
  auto device = open();
  auto q = queue(*device);
  auto e = event(*device);
  int value = 0;
  {
    Gate gate(*device);
    gate.hold(*q, tag());
    run(*q, [&] { value = 5; });
    MOJO_OK(q->record(*e, tag()));
    bool complete = true;
    MOJO_OK(e->query(complete));
    EXPECT_FALSE(complete);
  }
  MOJO_OK(e->synchronize());
  EXPECT_EQ(value, 5);
  bool complete = false;
  MOJO_OK(e->query(complete));
  EXPECT_TRUE(complete);
}

TEST_P(Events, QueryComesTrueWithoutAWait) {
  auto device = open();
  auto q = queue(*device);
  auto e = event(*device);
  int value = 0;
  run(*q, [&] { value = 3; });
  MOJO_OK(q->record(*e, tag()));
  for (bool complete = false; !complete;) MOJO_OK(e->query(complete));
  EXPECT_EQ(value, 3);
}

TEST_P(Events, SynchronizeDoesNotWaitForWhatComesAfter) {  // E-02
  auto device = open();
  auto q = queue(*device);
  auto e = event(*device);
  Gate gate(*device);
  MOJO_OK(q->record(*e, tag()));
  gate.hold(*q, tag());
  run(*q, [] {});
  MOJO_OK(e->synchronize());
  bool complete = true;
  MOJO_OK(q->query(complete));
  EXPECT_FALSE(complete);
}

TEST_P(Events, AWaitOrdersTwoQueues) {  // M-01, E-03
  auto device = open();
  auto producer = queue(*device), consumer = queue(*device);
  auto e = event(*device);
  Gate gate(*device);
  int value = 0, seen = -1;
  gate.hold(*producer, tag());
  run(*producer, [&] { value = 42; });
  MOJO_OK(producer->record(*e, tag()));
  MOJO_OK(consumer->wait(*e, tag()));
  run(*consumer, [&] { seen = value; });
  gate.open();
  MOJO_OK(consumer->synchronize());
  EXPECT_EQ(seen, 42);
}

TEST_P(Events, AWaitKeepsTheRecordItWasIssuedAgainst) {  // E-06
  auto device = open();
  auto a = queue(*device), b = queue(*device), waiter = queue(*device);
  auto e = event(*device);
  Gate first(*device), second(*device);
  first.hold(*a, tag());
  MOJO_OK(a->record(*e, tag()));
  MOJO_OK(waiter->wait(*e, tag()));
  second.hold(*b, tag());
  MOJO_OK(b->record(*e, tag()));  // replaces what the event stands for, not what the wait waits for
  bool ran = false;
  run(*waiter, [&] { ran = true; });
  bool complete = true;
  MOJO_OK(waiter->query(complete));
  EXPECT_FALSE(complete);
  first.open();
  MOJO_OK(waiter->synchronize());  // hangs if it waited for the second record
  EXPECT_TRUE(ran);
  MOJO_OK(e->query(complete));
  EXPECT_FALSE(complete);
  second.open();
  MOJO_OK(e->synchronize());
}

TEST_P(Events, DestroyingWithRecordsAndWaitsPendingIsSafe) {  // E-09
  auto device = open();
  auto producer = queue(*device), consumer = queue(*device);
  int value = 0, seen = -1;
  {
    Gate gate(*device);
    gate.hold(*producer, tag());
    run(*producer, [&] { value = 9; });
    auto e = event(*device);
    MOJO_OK(producer->record(*e, tag()));
    MOJO_OK(consumer->wait(*e, tag()));
    e.reset();
    run(*consumer, [&] { seen = value; });
  }
  MOJO_OK(consumer->synchronize());
  EXPECT_EQ(seen, 9);
}

TEST_P(Events, AcrossDevicesWaitingWorksAndRecordingIsRefused) {  // E-09
  auto first = open(0), second = open(1);
  auto q0 = queue(*first), q1 = queue(*second);
  auto e = event(*first);
  int value = 0, seen = -1;
  {
    Gate gate(*first);
    gate.hold(*q0, tag());
    run(*q0, [&] { value = 1; });
    MOJO_OK(q0->record(*e, tag()));
    MOJO_OK(q1->wait(*e, tag()));
    run(*q1, [&] { seen = value; });
  }
  MOJO_OK(q1->synchronize());
  EXPECT_EQ(seen, 1);
  const Status status = q1->record(*e, tag());
  EXPECT_EQ(status.code(), StatusCode::failed_precondition);
  EXPECT_THAT(status.message(), testing::AllOf(testing::HasSubstr("device 0"), testing::HasSubstr("device 1")));
  MOJO_OK(q0->synchronize());
}

TEST_P(Events, TimingTellsTwoRecordsAroundASmallTaskApart) {  // E-04
  auto device = open();
  auto q = queue(*device);
  auto start = event(*device, true), end = event(*device, true);
  for (int i = 0; i < 100; ++i) {
    MOJO_OK(q->record(*start, tag()));
    run(*q, [] {});
    MOJO_OK(q->record(*end, tag()));
    MOJO_OK(end->synchronize());
    double elapsed = 0, back = 0;
    MOJO_OK(end->elapsed_since(*start, elapsed));
    MOJO_OK(start->elapsed_since(*end, back));
    EXPECT_GT(elapsed, 0);
    EXPECT_EQ(elapsed, -back);
  }
}

TEST_P(Events, TimingRefusesWhatHasNone) {  // E-04
  auto device = open();
  auto q = queue(*device);
  auto timed = event(*device, true), never = event(*device, true), plain = event(*device),
       pending = event(*device, true);
  MOJO_OK(q->record(*timed, tag()));
  MOJO_OK(q->record(*plain, tag()));
  MOJO_OK(q->synchronize());
  double ms = 0;
  EXPECT_EQ(plain->elapsed_since(*timed, ms).code(), StatusCode::invalid_argument);
  EXPECT_EQ(timed->elapsed_since(*plain, ms).code(), StatusCode::invalid_argument);
  EXPECT_EQ(timed->elapsed_since(*never, ms).code(), StatusCode::failed_precondition);
  Gate gate(*device);
  gate.hold(*q, tag());
  MOJO_OK(q->record(*pending, tag()));
  EXPECT_EQ(pending->elapsed_since(*timed, ms).code(), StatusCode::failed_precondition);
  gate.open();
  MOJO_OK(q->synchronize());
}

TEST_P(Events, ALongChainOfWaitingQueuesFinishes) {  // S-08: waiting holds no thread
  auto device = open();
  constexpr int length = 200;
  std::vector<std::unique_ptr<driver::Queue>> queues;
  std::vector<std::unique_ptr<driver::Event>> events;
  std::vector<int> order;
  Gate gate(*device);
  for (int i = 0; i < length; ++i) {
    queues.push_back(queue(*device));
    events.push_back(event(*device));
    if (i == 0) {
      gate.hold(*queues[0], tag());
    } else {
      MOJO_OK(queues.back()->wait(*events[static_cast<std::size_t>(i) - 1], tag()));
    }
    run(*queues.back(), [&order, i] { order.push_back(i); });
    MOJO_OK(queues.back()->record(*events.back(), tag()));
  }
  gate.open();
  MOJO_OK(queues.back()->synchronize());
  ASSERT_EQ(order.size(), static_cast<std::size_t>(length));
  for (int i = 0; i < length; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_P(Events, ManyThreadsRecordWaitAndAsk) {
  numbered = false;
  auto device = open();
  std::vector<std::unique_ptr<driver::Queue>> queues;
  for (int i = 0; i < 4; ++i) queues.push_back(queue(*device));
  auto shared = event(*device, true);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        run(*queues[t], [] {});
        EXPECT_TRUE(queues[t]->record(*shared, tag()).ok());
        EXPECT_TRUE(queues[(t + 1) % 4]->wait(*shared, tag()).ok());
        bool complete = false;
        EXPECT_TRUE(shared->query(complete).ok());
        if (i % 20 == 0) {
          EXPECT_TRUE(shared->synchronize().ok());
        }
        std::unique_ptr<driver::Event> own;
        EXPECT_TRUE(device->create_event({}, own).ok());
        EXPECT_TRUE(queues[t]->record(*own, tag()).ok());
        EXPECT_TRUE(queues[(t + 2) % 4]->wait(*own, tag()).ok());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& q : queues) MOJO_OK(q->synchronize());
}

// Random programs of tasks, records and waits over four queues of two devices. Each task adds one to its queue's clock
// and notes what it sees of the others'; a model says the least that it must see.
TEST_P(Events, RandomProgramsSeeWhatTheirWaitsPromise) {
  const auto seed = static_cast<unsigned>(testing::UnitTest::GetInstance()->random_seed()) + 1u;
  RecordProperty("seed", static_cast<int>(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::size_t n = 4;
  using Clock = std::array<int, n>;
  auto d0 = open(0), d1 = open(1);
  std::vector<std::unique_ptr<driver::Queue>> queues;
  for (std::size_t i = 0; i < n; ++i) queues.push_back(queue(i < 2 ? *d0 : *d1));
  struct Marker {
    std::unique_ptr<driver::Event> event;
    std::size_t device;
    Clock clock{};
  };
  std::vector<Marker> markers;
  for (std::size_t i = 0; i < 6; ++i) markers.push_back({event(i < 3 ? *d0 : *d1), i < 3 ? 0u : 1u, {}});
  std::array<std::atomic<int>, n> done{};
  std::array<Clock, n> known{};
  std::atomic<int> violations{0};
  for (int step = 0; step < 3000; ++step) {
    const std::size_t q = random() % n;
    switch (random() % 4) {
      case 0:
      case 1: {
        ++known[q][q];
        run(*queues[q], [&, q, least = known[q]] {
          done[q].fetch_add(1);
          for (std::size_t other = 0; other < n; ++other) {
            if (done[other].load() < least[other]) violations.fetch_add(1);
          }
        });
        break;
      }
      case 2: {
        Marker& marker = markers[random() % 3 + (q < 2 ? 0 : 3)];
        MOJO_OK(queues[q]->record(*marker.event, tag()));
        marker.clock = known[q];
        break;
      }
      default: {
        Marker& marker = markers[random() % markers.size()];
        MOJO_OK(queues[q]->wait(*marker.event, tag()));
        for (std::size_t i = 0; i < n; ++i) known[q][i] = std::max(known[q][i], marker.clock[i]);
      }
    }
    if (random() % 64 == 0) {
      Marker& marker = markers[random() % markers.size()];
      MOJO_OK(marker.event->synchronize());
      for (std::size_t i = 0; i < n; ++i) EXPECT_GE(done[i].load(), marker.clock[i]);
    }
  }
  for (auto& q : queues) MOJO_OK(q->synchronize());
  EXPECT_EQ(violations, 0);
  for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(done[i].load(), known[i][i]);
}

}  // namespace
}  // namespace mojo::conformance
