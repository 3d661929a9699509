// Every example with the nth call of the driver failing, for every n: a clear error, nothing leaked, and the next run works.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <numeric>
#include <ranges>
#include <span>
#include <stdexcept>
#include <vector>

#include "drivers/layers/checked.h"
#include "drivers/layers/faulty.h"
#include "support/host_fixture.h"

// All that the examples include has been included above, so that what is left fits into a namespace each.
namespace vector_add {
#include "../../examples/cpp/vector_add.cpp"
}
namespace two_streams {
#include "../../examples/cpp/two_streams.cpp"
}
namespace pipeline {
#include "../../examples/cpp/pipeline.cpp"
}
namespace host_callback {
#include "../../examples/cpp/host_callback.cpp"
}
namespace completion_flag {
#include "../../examples/cpp/completion_flag.cpp"
}
namespace errors {
#include "../../examples/cpp/errors.cpp"
}
namespace several_devices {
#include "../../examples/cpp/several_devices.cpp"
}

namespace mojo::test {
namespace {

// This program empties its cache again and again: it has one of its own, set before the first question for devices.
class OwnCache {
 public:
  OwnCache() {
    folder_ = (std::filesystem::temp_directory_path() / "mojo-examples-XXXXXX").string();
    if (mkdtemp(folder_.data()) != nullptr) setenv("TORCH_MOJO_BACKEND_CACHE_DIR", folder_.c_str(), 1);
  }
  ~OwnCache() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

 private:
  std::string folder_;
};
const OwnCache own_cache;

constexpr const char* injected = "the call that the test made fail";

struct Example {
  const char* name;
  int (*main)();
};
std::ostream& operator<<(std::ostream& out, const Example& example) { return out << example.name; }

class ExamplesFault : public ::testing::TestWithParam<Example> {};

// Waits for the device; its streams may have kept failures of an example that ended early.
void settle(const DeviceContext& ctx) {
  for (int i = 0; i < 100; ++i) {
    try {
      ctx.synchronize();
      return;
    } catch (const std::exception&) {}
  }
  ADD_FAILURE() << "device " << ctx.index() << " does not come to rest";
}

// 0, or that the example reported failure: by its exit status, or by an exception, which must then be the right one.
bool fails(int (*example)()) {
  try {
    return example() != 0;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(injected), std::string::npos) << error.what();
  } catch (const OutOfMemory&) {}  // what a driver's out_of_memory becomes, with the allocator's numbers
  return true;
}

TEST_P(ExamplesFault, EveryCallMayFail) {
  constexpr int devices = 2;
  auto faults = std::make_shared<layers::Faults>();
  host::HostOptions options;
  options.devices = devices;
  options.workers = 2;
  options.memory_bytes = std::uint64_t{1} << 28;
  options.scribble_freed = true;
  base::Settings settings;
  settings.check_driver = true;
  runtime::Registry::instance().reset_for_test(
      layers::make_faulty(layers::make_checked(host::make_host_driver(options)), faults), settings);
  int failures = 0;
  for (std::uint64_t n = 1; n < 1000; ++n) {
    SCOPED_TRACE("call " + std::to_string(n));
    for (int device = 0; device < devices; ++device) DeviceContext(device).empty_cache();
    pinned_empty_cache();
    faults->clear();
    if (n <= 16) static_cast<void>(clear_cache());  // so that it compiles, early on, and that may fail too
    faults->fail_nth(n, {n % 2 ? StatusCode::internal : StatusCode::out_of_memory, injected});
    const bool failed = fails(GetParam().main);
    const bool triggered = faults->triggered();
    faults->clear();
    for (int device = 0; device < devices; ++device) settle(DeviceContext(device));
    for (int device = 0; device < devices; ++device) {
      const DeviceContext ctx(device);
      ctx.empty_cache();
      EXPECT_EQ(ctx.memory_statistics().allocated_bytes[0].current, 0);
      EXPECT_EQ(ctx.memory_statistics().reserved_bytes[0].current, 0);
    }
    EXPECT_EQ(pinned_statistics().active_requests.current, 0);
    EXPECT_EQ(GetParam().main(), 0);  // the next run works
    if (::testing::Test::HasFailure()) break;
    failures += failed;
    if (!triggered) {
      EXPECT_FALSE(failed);
      break;
    }
    ASSERT_LT(n, 999U);
  }
  EXPECT_GT(failures, 3);
  runtime::Registry::instance().reset_for_test(nullptr);
}

INSTANTIATE_TEST_SUITE_P(
    All, ExamplesFault,
    ::testing::Values(Example{"vector_add", vector_add::main}, Example{"two_streams", two_streams::main},
                      Example{"pipeline", pipeline::main}, Example{"host_callback", host_callback::main},
                      Example{"completion_flag", completion_flag::main}, Example{"errors", errors::main},
                      Example{"several_devices", several_devices::main}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mojo::test
