// The host device and its process: threads, priorities, cost of queues, shutdown, fork.
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>

#include "conformance/driver_under_test.h"

namespace mojo::conformance {
namespace {

// The worker threads there are, and how often each has gone to sleep.
std::vector<std::uint64_t> worker_sleeps() {
  std::vector<std::uint64_t> sleeps;
  DIR* tasks = opendir("/proc/self/task");
  while (const dirent* entry = readdir(tasks)) {
    std::ifstream status(std::string("/proc/self/task/") + entry->d_name + "/status");
    bool worker = false;
    for (std::string line; std::getline(status, line);) {
      if (line == "Name:\tmojo-host") worker = true;
      const std::string key = "voluntary_ctxt_switches:";
      if (worker && line.starts_with(key)) sleeps.push_back(std::stoull(line.substr(key.size())));
    }
  }
  closedir(tasks);
  return sleeps;
}

std::size_t worker_count() { return worker_sleeps().size(); }

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
}

TEST(HostProcess, AskingStartsNoThread) {  // G-04
  ConformanceBase base(host::make_host_driver(host_options(2)));
  int count = 0;
  ASSERT_TRUE(base.driver->device_count(count).ok());
  auto device = base.open();
  auto q = base.queue(*device);
  auto e = base.event(*device);
  driver::DeviceProperties properties;
  ASSERT_TRUE(device->properties(properties).ok());
  EXPECT_EQ(worker_count(), 0u);
  base.run(*q, [] {});
  ASSERT_TRUE(q->synchronize().ok());
  EXPECT_GE(worker_count(), 1u);
  base.driver->shut_down();
  // A joined thread may be listed for a moment yet.
  for (int i = 0; i < 1000 && worker_count() != 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(worker_count(), 0u);
}

TEST(HostProcess, WorkersAreBoundedWhateverTheNumberOfQueues) {  // S-11
  ConformanceBase base(host::make_host_driver(host_options(2)));
  auto device = base.open();
  const std::uint64_t memory = resident_bytes();
  std::vector<std::unique_ptr<driver::Queue>> queues;
  std::atomic<int> ran{0};
  for (int i = 0; i < 10'000; ++i) {
    queues.push_back(base.queue(*device));
    base.run(*queues.back(), [&] { ran.fetch_add(1); });
  }
  for (auto& q : queues) ASSERT_TRUE(q->synchronize().ok());
  EXPECT_EQ(ran, 10'000);
  EXPECT_LE(worker_count(), 2u);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(resident_bytes() - memory, std::uint64_t{20} << 20);
#else
  static_cast<void>(memory);
#endif
}

TEST(HostProcess, TheMoreUrgentOfTwoReadyQueuesRunsFirst) {  // S-06
  ConformanceBase base(host::make_host_driver(host_options(1)));
  auto device = base.open();
  auto holder = base.queue(*device, {.priority = -2});
  auto low = base.queue(*device, {.priority = 0}), middle = base.queue(*device, {.priority = -1}),
       high = base.queue(*device, {.priority = -2});
  Blocker blocker;
  ASSERT_TRUE(holder->host_task(task_of([&] { return blocker(); }), {}, base.tag()).ok());
  blocker.wait_until_running();  // the only worker is busy: all that follows is ready when it comes free
  std::vector<char> order;
  for (int i = 0; i < 3; ++i) {
    base.run(*low, [&] { order.push_back('l'); });
    base.run(*middle, [&] { order.push_back('m'); });
    base.run(*high, [&] { order.push_back('h'); });
  }
  blocker.release();
  for (auto* q : {low.get(), middle.get(), high.get()}) ASSERT_TRUE(q->synchronize().ok());
  EXPECT_EQ(std::string(order.begin(), order.end()), "hhhmmmlll");
}

TEST(HostProcess, AnUrgentQueueOvertakesALongOneBetweenItsOperations) {  // S-06
  ConformanceBase base(host::make_host_driver(host_options(1)));
  auto device = base.open();
  auto low = base.queue(*device), high = base.queue(*device, {.priority = -2});
  Blocker blocker;
  ASSERT_TRUE(low->host_task(task_of([&] { return blocker(); }), {}, base.tag()).ok());
  blocker.wait_until_running();
  std::vector<char> order;
  for (int i = 0; i < 100; ++i) base.run(*low, [&] { order.push_back('l'); });
  base.run(*high, [&] { order.push_back('h'); });
  blocker.release();
  ASSERT_TRUE(low->synchronize().ok());
  ASSERT_TRUE(high->synchronize().ok());
  ASSERT_EQ(order.size(), 101u);
  EXPECT_EQ(order[0], 'h');
}

TEST(HostProcess, EqualQueuesTakeTurns) {
  ConformanceBase base(host::make_host_driver(host_options(1)));
  auto device = base.open();
  auto endless = base.queue(*device), other = base.queue(*device);
  Blocker blocker;
  ASSERT_TRUE(endless->host_task(task_of([&] { return blocker(); }), {}, base.tag()).ok());
  blocker.wait_until_running();
  int before_other = 0, count = 0;
  for (int i = 0; i < 5000; ++i) base.run(*endless, [&] { ++count; });
  base.run(*other, [&] { before_other = count; });
  blocker.release();
  ASSERT_TRUE(other->synchronize().ok());
  ASSERT_TRUE(endless->synchronize().ok());
  EXPECT_LT(before_other, 5000);
}

TEST(HostProcess, DelaysOfAllLengthsEndInOrderOnOneWorker) {
  ConformanceBase base(host::make_host_driver(host_options(1)));
  auto device = base.open();
  std::vector<std::unique_ptr<driver::Queue>> queues;
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) queues.push_back(base.queue(*device));
  Blocker blocker;  // so that all delays start together
  auto gate_queue = base.queue(*device, {.priority = -2});
  ASSERT_TRUE(gate_queue->host_task(task_of([&] { return blocker(); }), {}, base.tag()).ok());
  for (int i = 4; i >= 0; --i) {
    auto& q = *queues[static_cast<std::size_t>(i)];
    ASSERT_TRUE(q.delay(static_cast<std::uint64_t>(i) * 20'000'000 + 1, base.tag()).ok());
    base.run(q, [&order, i] { order.push_back(i); });
  }
  blocker.release();
  for (auto& q : queues) ASSERT_TRUE(q->synchronize().ok());
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(HostProcess, AnEventMeasuresADelay) {  // E-04
  ConformanceBase base(host::make_host_driver(host_options(2)));
  auto device = base.open();
  auto q = base.queue(*device);
  auto start = base.event(*device, true), end = base.event(*device, true);
  ASSERT_TRUE(q->record(*start, base.tag()).ok());
  ASSERT_TRUE(q->delay(5'000'000, base.tag()).ok());
  ASSERT_TRUE(q->record(*end, base.tag()).ok());
  ASSERT_TRUE(end->synchronize().ok());
  double ms = 0;
  ASSERT_TRUE(end->elapsed_since(*start, ms).ok());
  EXPECT_GE(ms, 5.0);
}

TEST(HostProcess, AnIdleDeviceUsesNoProcessorTime) {
  ConformanceBase base(host::make_host_driver(host_options(4)));
  auto device = base.open();
  auto q = base.queue(*device), parked = base.queue(*device);
  for (int i = 0; i < 100; ++i) base.run(*q, [] {});
  ASSERT_TRUE(q->synchronize().ok());
  Gate gate(*device);
  gate.hold(*parked, base.tag());
  // Not synchronisation: time for the workers to fall asleep, and then to be caught awake.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto before = worker_sleeps();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_GE(before.size(), 1u);
  // Who sleeps all along switches no contexts, however slow the machine is.
  EXPECT_EQ(worker_sleeps(), before);
}

// --- shutdown --------------------------------------------------------------------------------------------------

struct Shutdown : testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Schedules, Shutdown, testing::Values("fifo", "random:0", "random:1"), [](const auto& info) {
  return info.param == "fifo" ? std::string("fifo") : "random_" + info.param.substr(7);
});

TEST_P(Shutdown, DropsWhatIsPendingAndRefusesMore) {  // G-05
  ConformanceBase base(host::make_host_driver(host_options(2, GetParam())));
  auto device = base.open();
  auto held = base.queue(*device), waiting = base.queue(*device), asleep = base.queue(*device);
  auto e = base.event(*device);
  std::uint64_t* value = nullptr;
  ASSERT_TRUE(device->allocate_value(value).ok());
  std::atomic<int> dropped{0}, ran{0};
  const auto task = [&] {
    return task_of(
        [&] {
          ran.fetch_add(1);
          return Status();
        },
        &dropped);
  };
  ASSERT_TRUE(held->wait_value(value, 1, base.tag()).ok());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(held->host_task(task(), {}, base.tag()).ok());
  ASSERT_TRUE(held->record(*e, base.tag()).ok());
  ASSERT_TRUE(waiting->wait(*e, base.tag()).ok());
  ASSERT_TRUE(waiting->host_task(task(), {}, base.tag()).ok());
  ASSERT_TRUE(asleep->delay(std::uint64_t{3600} * 1'000'000'000, base.tag()).ok());
  ASSERT_TRUE(asleep->wait(*e, base.tag()).ok());  // random: a delay is virtual, a wait is not
  ASSERT_TRUE(asleep->host_task(task(), {}, base.tag()).ok());
  std::vector<std::thread> waiters;
  std::array<Status, 3> results;
  waiters.emplace_back([&] { results[0] = held->synchronize(); });
  waiters.emplace_back([&] { results[1] = e->synchronize(); });
  waiters.emplace_back([&] { results[2] = asleep->synchronize(); });
  base.driver->shut_down();
  for (auto& waiter : waiters) waiter.join();
  for (const Status& result : results) EXPECT_EQ(result.code(), StatusCode::shut_down) << result.message();
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(dropped, 12);
  const driver::HostTask late = task();
  EXPECT_EQ(held->host_task(late, {}, base.tag()).code(), StatusCode::shut_down);
  late.drop(late.state);
  EXPECT_EQ(held->record(*e, base.tag()).code(), StatusCode::shut_down);
  EXPECT_EQ(waiting->synchronize().code(), StatusCode::shut_down);
  bool complete = true;
  EXPECT_EQ(waiting->query(complete).code(), StatusCode::shut_down);
  DevicePtr ptr;
  EXPECT_EQ(device->allocate(64, ptr).code(), StatusCode::shut_down);
  std::unique_ptr<driver::Queue> none;
  EXPECT_EQ(device->create_queue({}, none).code(), StatusCode::shut_down);
  base.driver->shut_down();  // once more is nothing
}

TEST_P(Shutdown, LetsTheRunningTaskFinish) {  // G-05
  ConformanceBase base(host::make_host_driver(host_options(2, GetParam())));
  auto device = base.open();
  auto q = base.queue(*device);
  Blocker blocker;
  std::atomic<int> finished{0}, dropped{0};
  const auto body = [&] {
    static_cast<void>(blocker());
    finished.fetch_add(1);
    return Status();
  };
  ASSERT_TRUE(q->host_task(task_of(body), {}, base.tag()).ok());
  ASSERT_TRUE(q->host_task(task_of(body, &dropped), {}, base.tag()).ok());
  std::thread waiter([&] { static_cast<void>(q->synchronize()); });
  blocker.wait_until_running();
  std::thread releaser([&] { blocker.release(); });
  base.driver->shut_down();
  EXPECT_GE(finished, 1);
  EXPECT_EQ(finished + dropped, 2);
  waiter.join();
  releaser.join();
}

TEST_P(Shutdown, DestroyingEverythingInAnyOrderIsSafe) {
  for (int order = 0; order < 3; ++order) {
    auto driver = host::make_host_driver(host_options(2, GetParam()));
    std::unique_ptr<driver::Device> device;
    ASSERT_TRUE(driver->open(0, device).ok());
    std::unique_ptr<driver::Queue> a, b;
    std::unique_ptr<driver::Event> e;
    ASSERT_TRUE(device->create_queue({}, a).ok());
    ASSERT_TRUE(device->create_queue({}, b).ok());
    ASSERT_TRUE(device->create_event({}, e).ok());
    ASSERT_TRUE(a->delay(std::uint64_t{3600} * 1'000'000'000, 1).ok());
    ASSERT_TRUE(a->record(*e, 2).ok());
    ASSERT_TRUE(b->wait(*e, 1).ok());
    if (order == 0) {
      driver.reset();
      device.reset();
    } else if (order == 1) {
      e.reset();
      a.reset();
      device.reset();
    } else {
      b.reset();
      driver->shut_down();
    }
  }
}

TEST(HostProcess, ATaskThatNeverEndsDelaysTheExitByADeadlineOnly) {  // G-05
  // In a process of its own, which ends with the task still running.
  EXPECT_EXIT(
      {
        ConformanceBase base(host::make_host_driver(host_options(1)));
        auto device = base.open();
        auto q = base.queue(*device);
        static Blocker forever;
        static_cast<void>(q->host_task(task_of([] { return forever(); }), {}, base.tag()));
        forever.wait_until_running();
        base.driver->shut_down();
        _exit(q->synchronize().code() == StatusCode::shut_down ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

// --- fork ------------------------------------------------------------------------------------------------------

// Runs `body` in a forked child; its answer is the exit code, and a child that hangs is killed by its alarm.
int in_child(const std::function<bool()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(HostFork, TheChildOfAUsedProcessIsRefusedAndTheParentUnharmed) {  // G-04
  ConformanceBase base(host::make_host_driver(host_options(2)));
  auto device = base.open();
  auto q = base.queue(*device), busy = base.queue(*device);
  auto e = base.event(*device);
  DevicePtr memory;
  void* pinned = nullptr;
  std::uint64_t* value = nullptr;
  ASSERT_TRUE(device->allocate(1 << 20, memory).ok());
  ASSERT_TRUE(device->allocate_pinned(4096, pinned).ok());
  ASSERT_TRUE(device->allocate_value(value).ok());
  ASSERT_TRUE(q->record(*e, base.tag()).ok());
  // Other threads are in the middle of the driver, whose locks some of the children find taken.
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) {
      base.run(*busy, [] {});
      static_cast<void>(busy->record(*e, base.tag()));
      DevicePtr own;
      static_cast<void>(device->allocate(4096, own));
      static_cast<void>(device->free(own));
      static_cast<void>(busy->synchronize());
    }
  });
  const int rounds = 30;
  for (int round = 0; round < rounds; ++round) {
    const int code = in_child([&] {
      const auto forked = StatusCode::forked;
      bool complete = false;
      DevicePtr ptr;
      void* host = nullptr;
      std::uint64_t* slot = nullptr;
      std::unique_ptr<driver::Queue> queue;
      std::unique_ptr<driver::Event> event;
      std::unique_ptr<driver::Device> again;
      driver::MemoryInfo info;
      const Status status = q->host_task({[](void*) noexcept { return Status(); }}, {}, 1);
      bool good =
          status.code() == forked && status.message().find("forked after it has been used") != std::string::npos;
      good = good && q->record(*e, 2).code() == forked && q->wait(*e, 3).code() == forked;
      good = good && q->query(complete).code() == forked && q->synchronize().code() == forked;
      good = good && e->query(complete).code() == forked && e->synchronize().code() == forked;
      good = good && device->allocate(64, ptr).code() == forked && device->allocate_pinned(64, host).code() == forked;
      good = good && device->allocate_value(slot).code() == forked && device->signal_value(value, 1).code() == forked;
      good = good && device->memory_info(info).code() == forked && device->create_queue({}, queue).code() == forked;
      good = good && device->create_event({}, event).code() == forked;
      good = good && base.driver->open(0, again).code() == forked;
      good = good && device->set_option("schedule", "random:1").code() == forked;
      // Giving back is quiet.
      good = good && device->free(memory).ok() && device->free_pinned(pinned).ok() && device->free_value(value).ok();
      q.reset();
      e.reset();
      base.driver->shut_down();
      device.reset();
      return good;
    });
    ASSERT_EQ(code, 0) << "round " << round;
  }
  stop = true;
  other.join();
  base.run(*q, [] {});
  ASSERT_TRUE(q->synchronize().ok());
  ASSERT_TRUE(device->free(memory).ok());
  ASSERT_TRUE(device->free_pinned(pinned).ok());
  ASSERT_TRUE(device->free_value(value).ok());
}

#if !defined(__SANITIZE_THREAD__)                                 // which does not support threads started after a fork
TEST(HostFork, TheChildOfAProcessThatOnlyAskedMayUseTheDevice) {  // G-04
  ConformanceBase base(host::make_host_driver(host_options(2)));
  int count = 0;
  ASSERT_TRUE(base.driver->device_count(count).ok());
  auto device = base.open();
  auto q = base.queue(*device);
  EXPECT_EQ(in_child([&] {
              bool ran = false;
              base.run(*q, [&] { ran = true; });
              const bool good = q->synchronize().ok() && ran;
              base.driver->shut_down();
              return good;
            }),
            0);
  bool ran = false;
  base.run(*q, [&] { ran = true; });
  ASSERT_TRUE(q->synchronize().ok());
  EXPECT_TRUE(ran);
}
#endif

TEST(HostFork, UnderTheCheckedLayerToo) {
  ConformanceBase base(layers::make_checked(host::make_host_driver(host_options(2))));
  auto device = base.open();
  auto q = base.queue(*device);
  auto e = base.event(*device);
  ASSERT_TRUE(q->record(*e, base.tag()).ok());
  base.run(*q, [] {});
  ASSERT_TRUE(q->synchronize().ok());
  EXPECT_EQ(in_child([&] {
              const bool good = q->record(*e, 1).code() == StatusCode::forked;
              e.reset();
              q.reset();
              return good;
            }),
            0);
}

}  // namespace
}  // namespace mojo::conformance
