// Launches and sources that are refused, kernels and modules that are gone, calls that fail on the way.
#include "conformance/launch_fixture.h"

namespace mojo::conformance {
namespace {

INSTANTIATE_TEST_SUITE_P(Drivers, Launches, testing::ValuesIn(full_drivers()), name_of);

TEST_P(Launches, AccessesGoWithTheLaunch) {
  auto k = kernel(scale_source, "scale");
  const Buffer x = buffer<float>(8), y = buffer<float>(8);
  upload(x, std::vector<float>(8, 1));
  const float a = 2;
  const unsigned n = 8;
  const void* pointers[] = {&x, &y, &a, &n};
  const std::uint32_t sizes[] = {16, 16, 4, 4};
  Access accesses[] = {{{x.address}, 32, AccessMode::read}, {{y.address}, 32, AccessMode::write}};
  driver::Launch l;
  l.kernel = k.get();
  l.arguments = pointers;
  l.argument_sizes = sizes;
  l.accesses = accesses;
  MOJO_OK(queue_->launch(l, tag()));
  EXPECT_EQ(download<float>(y), std::vector<float>(8, 2));
  if (GetParam().name.find("checked") == std::string::npos) return;
  accesses[1].bytes = std::uint64_t{1} << 40;
  EXPECT_EQ(queue_->launch(l, tag()).code(), StatusCode::invalid_argument);
}

TEST_P(Launches, TheCheckedLayerKnowsWhichKernelsAre) {
  if (GetParam().name.find("checked") == std::string::npos) GTEST_SKIP() << "not checked";
  auto k = kernel(scale_source, "scale");
  const Buffer x = buffer<float>(8), y = buffer<float>(8);
  auto elsewhere = open(1);
  auto its_queue = queue(*elsewhere);
  std::swap(its_queue, queue_);
  Status status = launch(*k, {1}, {8}, 0, x, y, 2.0f, 8u);
  std::swap(its_queue, queue_);
  EXPECT_EQ(status.code(), StatusCode::failed_precondition);
  EXPECT_THAT(status.message(), testing::HasSubstr("a kernel of device 0 on a queue of device 1"));
  driver::Kernel& gone = *k;
  k.reset();
  status = launch(gone, {1}, {8}, 0, x, y, 2.0f, 8u);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), testing::HasSubstr("the kernel has been destroyed"));
}

TEST(LaunchFaults, EachCallOnTheWayToALaunchMayFail) {
  for (const char* call : {"compiler", "compiler_identity", "compile", "load_module", "kernel", "launch"}) {
    auto faults = std::make_shared<layers::Faults>();
    auto driver = layers::make_faulty(host::make_host_driver(host_options(2)), faults);
    std::unique_ptr<driver::Device> device;
    MOJO_OK(driver->open(0, device));
    std::unique_ptr<driver::Queue> q;
    MOJO_OK(device->create_queue({}, q));
    jit::CompileCache fresh({.directory = ""});
    const auto once = [&]() -> Status {
      std::unique_ptr<driver::Kernel> k;
      MOJO_RETURN_IF_ERROR(
          test::compile_kernel(*device, fresh, "extern \"C\" MOJO_KERNEL void nothing() {}", "nothing", k));
      driver::Launch l;
      l.kernel = k.get();
      MOJO_RETURN_IF_ERROR(q->launch(l, 0));
      return q->synchronize();
    };
    faults->fail_nth_of(call, 1, Status(StatusCode::unavailable, std::string("no ") + call));
    const Status status = once();
    EXPECT_EQ(status.message(), std::string("no ") + call);
    EXPECT_TRUE(faults->triggered()) << call;
    MOJO_OK(once());  // and the next works
  }
}

TEST_P(Launches, BadLaunchesAreRefusedWithTheReason) {
  auto k = kernel(scale_source, "scale");
  const Buffer x = buffer<float>(8), y = buffer<float>(8);
  const auto refused = [&](const Status& status, const char* why) {
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), testing::HasSubstr(why));
  };
  refused(launch(*k, {0}, {1}, 0, x, y, 2.0f, 8u), "a grid of 0 x 1 x 1 is empty");
  refused(launch(*k, {1}, {1, 0}, 0, x, y, 2.0f, 8u), "a block of 1 x 0 x 1 is empty");
  refused(launch(*k, {1}, {1025}, 0, x, y, 2.0f, 8u), "beyond the device's limit");
  refused(launch(*k, {1}, {1, 1, 65}, 0, x, y, 2.0f, 8u), "beyond the device's limit");
  refused(launch(*k, {1}, {64, 64}, 0, x, y, 2.0f, 8u), "4096 threads");
  refused(launch(*k, {1, 65536}, {1}, 0, x, y, 2.0f, 8u), "beyond the device's limit");
  refused(launch(*k, {1}, {1}, 1u << 30, x, y, 2.0f, 8u), "bytes of shared memory");
  refused(launch(*k, {1}, {1}, 0, x, y, 2.0f), "3 arguments; the kernel takes 4");
  refused(launch(*k, {1}, {1}, 0, x, y, 2.0, 8u), "argument 2 has 8 bytes; the kernel's has 4");
  struct {
    char bytes[5000];
  } large{};
  refused(launch(*k, {1}, {1}, 0, x, y, large), "bytes of arguments");
  driver::Launch none;
  refused(queue_->launch(none, tag()), "no kernel");

  driver::Launch clustered;
  clustered.kernel = k.get();
  clustered.cluster = {2, 1, 1};
  const Status status = queue_->launch(clustered, tag());
  EXPECT_EQ(status.code(), StatusCode::unsupported);
  EXPECT_THAT(status.message(), testing::HasSubstr("host driver does not support launch with a cluster"));
}

TEST_P(Launches, ASourceThatDoesNotCompileGivesTheCompilersTextWithItsLines) {
  jit::CompiledImagePtr image;
  Status status = compile("extern \"C\" MOJO_KERNEL void f(int n) {\n  int a = n;\n  undeclared(a);\n}\n", "f", image);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), testing::HasSubstr("kernel.cpp:3:"));
  EXPECT_THAT(status.message(), testing::HasSubstr("undeclared"));

  status = compile(scale_source, "scal", image);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), testing::HasSubstr("'scal' is not in the source"));

  status = compile(scale_source, "scale; }", image);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), testing::HasSubstr("not a device function's name"));

  status = compile(scale_source, "scale", image, {"-fno-such-option"});
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), testing::HasSubstr("no-such-option"));
}

TEST_P(Launches, WhatIsNoImageIsNotLoaded) {
  std::unique_ptr<driver::Module> module;
  EXPECT_EQ(device_->load_module({}, module).code(), StatusCode::invalid_argument);
  jit::CompiledImagePtr image;
  MOJO_OK(compile(scale_source, "scale", image));
  const std::span<const std::byte> bytes(image->bytes);
  EXPECT_EQ(device_->load_module(bytes.first(bytes.size() / 2), module).code(), StatusCode::invalid_argument);
  MOJO_OK(device_->load_module(bytes, module));
  std::unique_ptr<driver::Kernel> k;
  const Status status = module->kernel("other", k);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), testing::HasSubstr("no kernel 'other'"));
}

TEST_P(Launches, ADroppedLaunchLeavesNothing) {
  auto k = kernel(scale_source, "scale");
  const Buffer x = buffer<float>(8), y = buffer<float>(8);
  Gate gate(*device_);
  gate.hold(*queue_, tag());
  MOJO_OK(launch(*k, {1}, {8}, 0, x, y, 2.0f, 8u));
  queue_ = queue(*device_);  // the old one with its launch goes
}

// A library that is built with a sanitizer has device code checked by it too.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
void run_alone(const std::string& body, unsigned blocks) {
  ConformanceBase base(host::make_host_driver(host_options(2)));
  auto device = base.open();
  auto q = base.queue(*device);
  const std::string source = "extern \"C\" MOJO_KERNEL void f(mojo::Buffer<int> x) { " + body + " }\n";
  std::unique_ptr<driver::Kernel> k;
  MOJO_OK(test::compile_kernel(*device, cache(), source, "f", k));
  std::vector<int> memory(64, 0x7fffffff);
  const Buffer x{reinterpret_cast<std::uint64_t>(memory.data()), memory.size()};
  const void* const arguments[] = {&x};
  const std::uint32_t sizes[] = {sizeof x};
  driver::Launch l;
  l.kernel = k.get();
  l.grid = {blocks};
  l.block = {4};
  l.arguments = arguments;
  l.argument_sizes = sizes;
  MOJO_OK(q->launch(l, base.tag()));
  MOJO_OK(q->synchronize());
}

TEST(SanitizedKernelsDeathTest, AreChecked) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  run_alone("x[mojo::thread_index()] = mojo::block_sum(1);", 1);
#if defined(__SANITIZE_ADDRESS__)
  EXPECT_DEATH(run_alone("x[64 + mojo::thread_index()] = 1;", 1), "heap-buffer-overflow");
  EXPECT_DEATH(run_alone("x[0] += 1;", 1), "signed integer overflow");
  EXPECT_DEATH(run_alone("MOJO_SHARED int t[4]; mojo::barrier(); t[x[0] - 0x7ffffffa] = 1; x[0] = t[0];", 1),
               "out of bounds|global-buffer-overflow");
  // On the stack of a thread of a block, after it was left and entered again.
  EXPECT_DEATH(run_alone("int t[4] = {}; int* p = t; asm volatile(\"\" : \"+r\"(p) : : \"memory\");"
                         "for (int i = 0; i < x[1] - 0x7fffffff + 5; ++i) { mojo::barrier(); p[i] = i; } x[0] = t[0];",
                         1),
               "stack-buffer-overflow");
#else
  EXPECT_DEATH(run_alone("for (int i = 0; i < 1000; ++i) x[0] = x[0] ^ i;", 1u << 14), "data race");
#endif
}
#endif

}  // namespace
}  // namespace mojo::conformance
