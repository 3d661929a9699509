// What it is: the drivers that the conformance suite runs against, and what its tests are written with.
// Ordering: Gate holds a queue until the test opens it, so that a missing wait always shows. Threads: the test's own.
// Errors: MOJO_OK fails the test with the Status's text.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver/driver.h"
#include "drivers/host/host_driver.h"
#include "drivers/layers/checked.h"
#include "drivers/layers/faulty.h"
#include "drivers/layers/recorded.h"

#define MOJO_OK(expression)                                             \
  do {                                                                  \
    const ::mojo::Status status_under_test = (expression);              \
    ASSERT_TRUE(status_under_test.ok()) << status_under_test.message(); \
  } while (false)

namespace mojo::conformance {

struct DriverUnderTest {
  std::string name;
  std::function<std::unique_ptr<driver::Driver>()> make;
};

inline host::HostOptions host_options(int workers, std::string schedule = "fifo") {
  host::HostOptions options;
  options.devices = 2;
  options.memory_bytes = std::uint64_t{64} << 20;
  options.workers = workers;
  options.schedule = std::move(schedule);
  options.scribble_freed = true;
  return options;
}

// Every driver with several queues and events.
inline std::vector<DriverUnderTest> full_drivers() {
  const auto host = [](int workers, std::string schedule) {
    return [=] { return host::make_host_driver(host_options(workers, schedule)); };
  };
  std::vector<DriverUnderTest> drivers{
      {"host_1_worker", host(1, "fifo")}, {"host_2_workers", host(2, "fifo")}, {"host_4_workers", host(4, "fifo")}};
  for (int seed = 0; seed < 7; ++seed) {  // one of each style of schedule
    drivers.push_back({"host_random_" + std::to_string(seed), host(2, "random:" + std::to_string(seed))});
  }
  drivers.push_back({"checked", [=] { return layers::make_checked(host(2, "fifo")()); }});
  drivers.push_back(
      {"recorded", [=] { return layers::make_recorded(host(2, "fifo")(), std::make_shared<layers::CallLog>()); }});
  drivers.push_back({"checked_faulty_recorded", [=] {
                       auto inner = layers::make_recorded(host(2, "fifo")(), std::make_shared<layers::CallLog>());
                       inner = layers::make_faulty(std::move(inner), std::make_shared<layers::Faults>());
                       return layers::make_checked(std::move(inner));
                     }});
  return drivers;
}

inline std::string name_of(const testing::TestParamInfo<DriverUnderTest>& info) { return info.param.name; }

// Failures of queued work, as the driver reported them.
class Failures final : public driver::FailureSink {
 public:
  void on_failure(std::uint64_t tag, Status status) noexcept override {
    std::lock_guard guard(mutex_);
    seen_.emplace_back(tag, std::move(status));
  }
  std::vector<std::pair<std::uint64_t, Status>> seen() const {
    std::lock_guard guard(mutex_);
    return seen_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<std::uint64_t, Status>> seen_;
};

// A host task from a function; `dropped` counts those that were dropped.
inline driver::HostTask task_of(std::function<Status()> body, std::atomic<int>* dropped = nullptr) {
  struct State {
    std::function<Status()> body;
    std::atomic<int>* dropped;
  };
  driver::HostTask task;
  task.run = [](void* p) noexcept {
    const std::unique_ptr<State> state(static_cast<State*>(p));
    return state->body();
  };
  task.drop = [](void* p) noexcept {
    const std::unique_ptr<State> state(static_cast<State*>(p));
    if (state->dropped != nullptr) state->dropped->fetch_add(1);
  };
  task.state = new State{std::move(body), dropped};
  return task;
}

class ConformanceBase {
 public:
  explicit ConformanceBase(std::unique_ptr<driver::Driver> made) : driver(std::move(made)) {}

  std::unique_ptr<driver::Device> open(int index = 0) {
    std::unique_ptr<driver::Device> device;
    const Status status = driver->open(index, device);
    EXPECT_TRUE(status.ok()) << status.message();
    return device;
  }
  static std::unique_ptr<driver::Queue> queue(driver::Device& device, driver::QueueOptions options = {}) {
    std::unique_ptr<driver::Queue> out;
    const Status status = device.create_queue(options, out);
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }
  static std::unique_ptr<driver::Event> event(driver::Device& device, bool timing = false) {
    std::unique_ptr<driver::Event> out;
    const Status status = device.create_event({timing, false}, out);
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }
  // 0, that is no number, where a test's threads enqueue on one queue without agreeing on an order.
  std::uint64_t tag() { return numbered ? next_tag_.fetch_add(1) : 0; }
  bool numbered = true;
  // Queues a function.
  void run(driver::Queue& queue, std::function<void()> body) {
    const driver::HostTask task = task_of([body = std::move(body)] {
      body();
      return Status();
    });
    const Status status = queue.host_task(task, {}, tag());
    if (!status.ok()) task.drop(task.state);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  std::unique_ptr<driver::Driver> driver;

 private:
  std::atomic<std::uint64_t> next_tag_{1};
};

class Conformance : public testing::TestWithParam<DriverUnderTest>, public ConformanceBase {
 public:
  Conformance() : ConformanceBase(GetParam().make()) {}
};

// Holds queues, without holding a thread, until it is opened.
class Gate {
 public:
  explicit Gate(driver::Device& device) : device_(device) { EXPECT_TRUE(device_.allocate_value(address_).ok()); }
  ~Gate() {
    open();
    EXPECT_TRUE(device_.free_value(address_).ok());
  }
  void hold(driver::Queue& queue, std::uint64_t tag) { EXPECT_TRUE(queue.wait_value(address_, 1, tag).ok()); }
  void open() { EXPECT_TRUE(device_.signal_value(address_, 1).ok()); }

 private:
  driver::Device& device_;
  std::uint64_t* address_ = nullptr;
};

// A task that stands still on a worker until it is released; the test can wait until it runs.
class Blocker {
 public:
  ~Blocker() { release(); }
  Status operator()() {
    running_.store(true);
    running_.notify_all();
    released_.wait(false);
    return {};
  }
  void wait_until_running() { running_.wait(false); }
  void release() {
    released_.store(true);
    released_.notify_all();
  }

 private:
  std::atomic<bool> running_{false}, released_{false};
};

}  // namespace mojo::conformance
