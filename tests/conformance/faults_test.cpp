// Whole scenarios with the nth call failing, for every n: the failure arrives as it was given, nothing is left behind,
// nothing hangs, and the scenario works again afterwards.
#include "conformance/driver_under_test.h"

namespace mojo::conformance {
namespace {

class Faults : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Schedules, Faults, testing::Values("fifo", "random:1", "random:2"), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ':', '_');
  return name;
});

struct Scenario {
  driver::Driver& driver;
  std::atomic<int>& live_tasks;
  std::uint64_t tag = 1;

  Status task(driver::Queue& queue) {
    struct State {
      std::atomic<int>& live;
      explicit State(std::atomic<int>& count) : live(count) { live.fetch_add(1); }
      ~State() { live.fetch_sub(1); }
    };
    driver::HostTask task;
    task.state = new State(live_tasks);
    task.run = [](void* p) noexcept {
      delete static_cast<State*>(p);
      return Status();
    };
    task.drop = [](void* p) noexcept { delete static_cast<State*>(p); };
    Status status = queue.host_task(task, {}, tag++);
    if (!status.ok()) task.drop(task.state);  // not taken over
    return status;
  }

  // Two queues, an upload, work, a wait, a download; what is left over is given back whatever fails.
  Status operator()() {
    std::unique_ptr<driver::Device> device;
    MOJO_RETURN_IF_ERROR(driver.open(0, device));
    DevicePtr memory;
    void* pinned = nullptr;
    std::uint64_t* value = nullptr;
    Status status = [&]() -> Status {
      std::unique_ptr<driver::Queue> copies, work;
      std::unique_ptr<driver::Event> uploaded, done;
      MOJO_RETURN_IF_ERROR(device->create_queue({}, copies));
      MOJO_RETURN_IF_ERROR(device->create_queue({}, work));
      MOJO_RETURN_IF_ERROR(device->create_event({}, uploaded));
      MOJO_RETURN_IF_ERROR(device->create_event({true}, done));
      MOJO_RETURN_IF_ERROR(device->allocate(1 << 16, memory));
      MOJO_RETURN_IF_ERROR(device->allocate_pinned(1 << 16, pinned));
      MOJO_RETURN_IF_ERROR(device->allocate_value(value));
      driver::Copy copy;
      copy.kind = driver::CopyKind::host_to_device;
      copy.dst = memory;
      copy.host_src = pinned;
      copy.bytes = 1 << 16;
      MOJO_RETURN_IF_ERROR(copies->wait_value(value, 1, tag++));
      MOJO_RETURN_IF_ERROR(copies->copy(copy, tag++));
      MOJO_RETURN_IF_ERROR(copies->record(*uploaded, tag++));
      MOJO_RETURN_IF_ERROR(work->wait(*uploaded, tag++));
      MOJO_RETURN_IF_ERROR(task(*work));
      MOJO_RETURN_IF_ERROR(work->fill({memory, 1 << 16, 1, 1}, tag++));
      MOJO_RETURN_IF_ERROR(task(*work));
      MOJO_RETURN_IF_ERROR(work->record(*done, tag++));
      MOJO_RETURN_IF_ERROR(device->signal_value(value, 1));
      MOJO_RETURN_IF_ERROR(done->synchronize());
      copy.kind = driver::CopyKind::device_to_host;
      copy.host_dst = pinned;
      copy.src = memory;
      MOJO_RETURN_IF_ERROR(work->copy(copy, tag++));
      return work->synchronize();
    }();
    EXPECT_TRUE(device->free(memory).ok());
    EXPECT_TRUE(device->free_pinned(pinned).ok());
    if (value != nullptr) {
      EXPECT_TRUE(device->free_value(value).ok());
    }
    return status;
  }
};

TEST_P(Faults, EveryCallFailsOnce) {
  const auto faults = std::make_shared<layers::Faults>();
  std::vector<std::string> leaks;
  auto driver = layers::make_checked(layers::make_faulty(host::make_host_driver(host_options(2, GetParam())), faults),
                                     [&](const std::string& line) { leaks.push_back(line); });
  std::atomic<int> live{0};
  MOJO_OK(Scenario({*driver, live})());
  const std::uint64_t calls = faults->calls();
  EXPECT_GE(calls, 20u);
  for (std::uint64_t n = 1; n <= calls; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    faults->clear();
    faults->fail_nth(n, Status(StatusCode::internal, "planned"));
    const Status status = Scenario({*driver, live})();
    EXPECT_EQ(status.message(), "planned");
    EXPECT_TRUE(faults->triggered());
    EXPECT_EQ(live, 0);
    faults->clear();
    MOJO_OK(Scenario({*driver, live})());
    EXPECT_EQ(live, 0);
  }
  EXPECT_THAT(leaks, testing::IsEmpty());
}

TEST_P(Faults, ByName) {
  const auto faults = std::make_shared<layers::Faults>();
  auto driver = layers::make_faulty(host::make_host_driver(host_options(2, GetParam())), faults);
  std::atomic<int> live{0};
  for (const char* name : {"allocate", "copy", "record", "wait", "create_event", "synchronize"}) {
    faults->clear();
    faults->fail_nth_of(name, 1, Status(StatusCode::device_lost, name));
    EXPECT_EQ(Scenario({*driver, live})().message(), name);
    EXPECT_EQ(faults->calls_of(name), 1u);
  }
}

}  // namespace
}  // namespace mojo::conformance
