// What it is: a gtest fixture that brings the runtime up on a host driver of the test's choosing, and small helpers.
// Ordering: none. Threads: one test at a time. Errors: a test that leaves work held fails in TearDown by timing out.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "drivers/host/host_driver.h"
#include "mojo/mojo.h"
#include "runtime/registry.h"

namespace mojo::test {

inline void start_runtime(const host::HostOptions& options, const base::Settings& settings = {}) {
  runtime::Registry::instance().reset_for_test(host::make_host_driver(options), settings);
}

class HostRuntime : public ::testing::Test {
 protected:
  void SetUp() override {
    host::HostOptions options;
    options.devices = 2;
    options.workers = 2;
    options.memory_bytes = std::uint64_t{1} << 30;
    start_runtime(options);
  }
  void TearDown() override { runtime::Registry::instance().reset_for_test(nullptr); }
};

// Holds a stream until opened: the test decides when it goes on, so a missing wait always shows.
class Gate {
 public:
  explicit Gate(DeviceStream stream) : flag_(DeviceContext(stream.device_index())) {
    stream.wait_for_host_value(flag_, 1);
  }
  ~Gate() { open(); }
  void open() {
    if (!open_) flag_.signal(1);
    open_ = true;
  }

 private:
  CompletionFlag flag_;
  bool open_ = false;
};

// Queues a callable.
inline void queue(DeviceStream stream, std::function<Status()> work) {
  auto state = std::make_unique<std::function<Status()>>(std::move(work));
  HostTask task;
  task.state = state.get();
  task.run = [](void* raw) noexcept -> Status {
    const std::unique_ptr<std::function<Status()>> held(static_cast<std::function<Status()>*>(raw));
    try {
      return (*held)();
    } catch (...) {
      return {StatusCode::task_failed, "the test's task threw", std::current_exception()};
    }
  };
  task.drop = [](void* raw) noexcept { delete static_cast<std::function<Status()>*>(raw); };
  stream.enqueue_host_task(task);
  static_cast<void>(state.release());  // the task owns it now
}
inline void queue(DeviceStream stream, std::function<void()> work) {
  queue(stream, std::function<Status()>([work = std::move(work)] {
          work();
          return Status{};
        }));
}

// A seed that is new at each run unless MOJO_TEST_SEED fixes it; printed, so that a failure can be repeated.
inline std::uint64_t fresh_seed() {
  const char* fixed = std::getenv("MOJO_TEST_SEED");
  const std::uint64_t seed = fixed ? std::strtoull(fixed, nullptr, 10) : std::random_device{}();
  std::printf("seed %llu (MOJO_TEST_SEED repeats it)\n", static_cast<unsigned long long>(seed));
  return seed;
}

template <class T>
T* on_host(DevicePtr ptr) {  // inside a queued task of the host device only
  return static_cast<T*>(ptr.opaque());
}

}  // namespace mojo::test
