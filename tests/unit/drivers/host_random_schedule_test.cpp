// The adversarial schedule of the host device: repeatable, different for different seeds, merciless to missing waits.
#include <array>
#include <set>

#include "conformance/driver_under_test.h"

namespace mojo::conformance {
namespace {

// Runs a fixed program of 4 queues and tells in which order its tasks ran.
class Program : public ConformanceBase {
 public:
  explicit Program(const std::string& schedule) : ConformanceBase(host::make_host_driver(host_options(2, schedule))) {}

  std::vector<int> operator()() {
    auto device = open(0), second = open(1);
    std::vector<std::unique_ptr<driver::Queue>> queues;
    for (int i = 0; i < 4; ++i) queues.push_back(queue(i < 2 ? *device : *second));
    auto e = event(*device);
    std::array<std::uint64_t*, 6> values{};  // one a round: a wait that comes late must find its value still there
    for (auto*& value : values) EXPECT_TRUE(device->allocate_value(value).ok());
    std::vector<int> order;
    bool complete = false;
    int number = 0;
    const auto task = [&](int q) {
      run(*queues[static_cast<std::size_t>(q)], [&order, n = number++] { order.push_back(n); });
    };
    for (int round = 0; round < 6; ++round) {
      for (int i = 0; i < 12; ++i) task(i % 4);
      EXPECT_TRUE(queues[0]->record(*e, tag()).ok());
      EXPECT_TRUE(queues[3]->wait(*e, tag()).ok());
      EXPECT_TRUE(queues[1]->wait_value(values[static_cast<std::size_t>(round)], 7, tag()).ok());
      EXPECT_TRUE(queues[2]->delay(1000, tag()).ok());
      for (int i = 0; i < 8; ++i) task(i % 4);
      EXPECT_TRUE(queues[2]->query(complete).ok());
      answers.push_back(complete);
      EXPECT_TRUE(e->query(complete).ok());
      answers.push_back(complete);
      EXPECT_TRUE(device->signal_value(values[static_cast<std::size_t>(round)], 7).ok());
      if (round % 2 == 0) {
        EXPECT_TRUE(queues[3]->synchronize().ok());
        tags.push_back(queues[3]->completed_tag());
      }
    }
    for (auto& q : queues) EXPECT_TRUE(q->synchronize().ok());
    EXPECT_EQ(order.size(), 120u);
    for (auto* value : values) EXPECT_TRUE(device->free_value(value).ok());
    return order;
  }

  std::vector<bool> answers;
  std::vector<std::uint64_t> tags;
};

TEST(RandomSchedule, OneSeedGivesOneOrderAndTheSameAnswers) {  // M-10
  for (int seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Program first("random:" + std::to_string(seed)), second("random:" + std::to_string(seed));
    EXPECT_EQ(first(), second());
    EXPECT_EQ(first.answers, second.answers);
    EXPECT_EQ(first.tags, second.tags);
  }
}

TEST(RandomSchedule, SeedsDiffer) {  // M-10
  std::set<std::vector<int>> orders;
  for (int seed = 0; seed < 40; ++seed) orders.insert(Program("random:" + std::to_string(seed))());
  EXPECT_GT(orders.size(), 35u);
}

// A producer, a consumer, and perhaps the wait between them: how many of 200 seeds let the consumer run first?
int wrong_values(bool with_wait) {
  int wrong = 0;
  for (int seed = 0; seed < 200; ++seed) {
    ConformanceBase base(host::make_host_driver(host_options(2, "random:" + std::to_string(seed))));
    auto device = base.open();
    auto producer = base.queue(*device), consumer = base.queue(*device);
    auto e = base.event(*device);
    int value = 0, seen = -1;
    base.run(*producer, [&] { value = 1; });
    EXPECT_TRUE(producer->record(*e, base.tag()).ok());
    if (with_wait) {
      EXPECT_TRUE(consumer->wait(*e, base.tag()).ok()) << seed;
    }
    base.run(*consumer, [&] { seen = value; });
    EXPECT_TRUE(consumer->synchronize().ok());
    EXPECT_TRUE(producer->synchronize().ok());
    wrong += seen != 1 ? 1 : 0;
  }
  return wrong;
}

TEST(RandomSchedule, AMissingWaitShowsAndAPresentOneNever) {  // M-10
  EXPECT_EQ(wrong_values(true), 0);
  EXPECT_GT(wrong_values(false), 20);
}

TEST(RandomSchedule, IsSwitchedOnAnIdleDeviceOnly) {
  ConformanceBase base(host::make_host_driver(host_options(2)));
  auto device = base.open();
  auto q = base.queue(*device), other = base.queue(*device);
  const auto program = [&] {
    std::vector<int> order(30);
    std::atomic<std::size_t> next{0};  // without a schedule two workers run the queues
    for (int i = 0; i < 30; ++i) base.run(i % 2 == 0 ? *q : *other, [&, i] { order[next.fetch_add(1)] = i; });
    EXPECT_TRUE(q->synchronize().ok());
    EXPECT_TRUE(other->synchronize().ok());
    return order;
  };
  static_cast<void>(program());
  {
    Gate gate(*device);
    gate.hold(*q, base.tag());
    EXPECT_EQ(device->set_option("schedule", "random:1").code(), StatusCode::failed_precondition);
  }
  ASSERT_TRUE(q->synchronize().ok());
  for (int seed = 0; seed < 50; ++seed) {
    const std::string schedule = "random:" + std::to_string(seed);
    ASSERT_TRUE(device->set_option("schedule", schedule).ok());
    const auto first = program();
    ASSERT_TRUE(device->set_option("schedule", schedule).ok());
    EXPECT_EQ(program(), first) << schedule;
  }
  ASSERT_TRUE(device->set_option("schedule", "fifo").ok());
  static_cast<void>(program());
}

TEST(RandomSchedule, AnEventRecordedUnderOneScheduleServesUnderTheNext) {
  ConformanceBase base(host::make_host_driver(host_options(2)));
  auto device = base.open();
  auto q = base.queue(*device);
  auto e = base.event(*device, true);
  for (const char* schedule : {"random:1", "fifo", "random:5", "random:5"}) {
    ASSERT_TRUE(q->record(*e, base.tag()).ok());
    ASSERT_TRUE(e->synchronize().ok());
    ASSERT_TRUE(q->synchronize().ok());
    ASSERT_TRUE(device->set_option("schedule", schedule).ok());
    bool complete = false;
    ASSERT_TRUE(e->query(complete).ok());
    EXPECT_TRUE(complete);
    ASSERT_TRUE(q->wait(*e, base.tag()).ok());
    ASSERT_TRUE(q->synchronize().ok());
  }
}

TEST(RandomSchedule, AProgramThatOnlyWatchesATaskIsNotLeftHanging) {
  for (int seed = 0; seed < 7; ++seed) {
    ConformanceBase base(host::make_host_driver(host_options(2, "random:" + std::to_string(seed))));
    auto device = base.open();
    auto q = base.queue(*device);
    std::atomic<bool> ran{false};
    base.run(*q, [&] {
      ran = true;
      ran.notify_all();
    });
    ran.wait(false);  // no call of the driver
    ASSERT_TRUE(q->synchronize().ok());
  }
}

TEST(RandomSchedule, BadTextNamesWhatIsAccepted) {
  ConformanceBase base(host::make_host_driver(host_options(2)));
  auto device = base.open();
  for (const char* text :
       {"", "lifo", "random", "random:", "random:x", "random:-1", "random:1x", "random:99999999999999999999"}) {
    const Status status = device->set_option("schedule", text);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << text;
    EXPECT_THAT(status.message(), testing::AllOf(testing::HasSubstr(text), testing::HasSubstr("'fifo'"),
                                                 testing::HasSubstr("random:SEED")));
  }
  auto driver = host::make_host_driver(host_options(2, "lifo"));
  std::unique_ptr<driver::Device> none;
  EXPECT_EQ(driver->open(0, none).code(), StatusCode::invalid_argument);
  EXPECT_EQ(device->set_option("schedule", "random:18446744073709551615").code(), StatusCode::ok);
}

}  // namespace
}  // namespace mojo::conformance
