// The host's memory runs out at any allocation of the way from a source to a launch: a Status or a message, and the next
// call works.
#include <array>
#include <cstdlib>
#include <fstream>
#include <new>

#include "drivers/host/compiler.h"
#include "drivers/host/image.h"
#include "jit/dialect.h"
#include "support/host_fixture.h"
#include "unit/jit/cache_fixture.h"

namespace {

// Which allocation of this thread from now on fails; 0: none.
thread_local int fail_at = 0;

bool fails() { return fail_at != 0 && --fail_at == 0; }

void* allocate(std::size_t bytes) {
  if (fails()) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Not inlined, or the compiler pairs malloc with delete and warns.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return allocate(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return allocate(bytes); }
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

namespace mojo {
namespace {

// Calls `call` with each of its allocations failing in turn, until it makes no more; how many it made.
template <class Call>
int sweep(Call&& call) {
  for (int at = 1;; ++at) {
    fail_at = at;
    call();
    if (std::exchange(fail_at, 0) != 0) return at - 1;
    if (at > 10'000) {
      ADD_FAILURE() << "no end";
      return at;
    }
  }
}

// Has memory for itself.
class RichCompiler final : public driver::Compiler {
 public:
  explicit RichCompiler(driver::Compiler& inner) : inner_(inner) {}
  Status identity(std::string& out) noexcept override {
    return rich([&] { return inner_.identity(out); });
  }
  Status target(std::string& out) noexcept override {
    return rich([&] { return inner_.target(out); });
  }
  const char* output_kind() const noexcept override { return inner_.output_kind(); }
  Status compile(const driver::CompileRequest& request, driver::CompileResult& out) noexcept override {
    return rich([&] { return inner_.compile(request, out); });
  }

 private:
  template <class Call>
  Status rich(Call&& call) {
    const int kept = std::exchange(fail_at, 0);
    Status status = call();
    fail_at = kept;
    return status;
  }
  driver::Compiler& inner_;
};

bool ok_or_no_memory(const Status& status) { return status.ok() || status.code() == StatusCode::out_of_memory; }

using CacheWithoutMemory = jit::CompileCaches;

TEST_F(CacheWithoutMemory, GivesAStatusAndWorksTheNextTime) {
  RichCompiler compiler(compiler_);
  for (const bool fault : {false, true}) {
    compiler_.failure = fault ? Status(StatusCode::invalid_argument, std::string(100, 'e')) : Status();
    std::unique_ptr<jit::CompileCache> cache;
    const int allocations = sweep([&] {
      const int kept = std::exchange(fail_at, 0);
      cache = std::make_unique<jit::CompileCache>(jit::CompileCacheOptions{.directory = ""});
      fail_at = kept;
      jit::CompiledImagePtr image;
      const Status status = cache->get(compiler, request("a"), image);
      const bool failed = std::exchange(fail_at, 0) == 0;
      EXPECT_TRUE(fault || ok_or_no_memory(status)) << status.message();
      EXPECT_TRUE(status.ok() || image == nullptr);
      const Status next = cache->get(compiler, request("a"), image);
      EXPECT_EQ(next.ok(), !fault) << next.message();
      if (!failed) fail_at = 1;
    });
    EXPECT_GT(allocations, 2);
  }
}

std::size_t mapped_images() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:mojo-image") != std::string::npos;
  return count;
}

TEST(ImageWithoutMemory, IsUnloadedOnce) {
  host::HostCompiler compiler("");
  const std::vector<std::string> entries{"f"};
  driver::CompileRequest request;
  request.source = "extern \"C\" MOJO_KERNEL void f(int, float) {}";
  request.entries = entries;
  request.headers = jit::dialect_headers();
  driver::CompileResult result;
  ASSERT_TRUE(compiler.compile(request, result).ok());
  const int allocations = sweep([&] {
    std::shared_ptr<const host::HostImage> image;
    std::unique_ptr<driver::Kernel> kernel;
    Status status;
    try {
      status = host::HostImage::load(result.image, image);
      if (status.ok()) status = host::HostModule(image).kernel("f", kernel);
    } catch (const std::bad_alloc&) {
      status = Status(StatusCode::out_of_memory, "");
    }
    const int kept = std::exchange(fail_at, 0);
    EXPECT_TRUE(ok_or_no_memory(status)) << status.message();
    kernel.reset();
    image.reset();
    EXPECT_EQ(mapped_images(), 0U);
    fail_at = kept;
  });
  EXPECT_GT(allocations, 3);
}

using FunctionsWithoutMemory = test::HostRuntime;

TEST_F(FunctionsWithoutMemory, TheUntypedLaunchDoesNotThrow) {  // D-04
  const DeviceContext ctx(0), other(1);
  const DeviceStream s = ctx.create_stream(), t = other.create_stream();
  const auto f = ctx.compile_untyped_function("extern \"C\" MOJO_KERNEL void f(int) {}", "f");
  const int value = 1;
  const std::array<const void*, 1> arguments{&value}, null{nullptr};
  const std::array<std::uint32_t, 1> sizes{4}, wrong{8};
  const std::array attributes{LaunchAttribute{1, 1}};
  const LaunchConfig plain{.grid = {1}, .block = {1}}, more{.grid = {1}, .block = {1}, .attributes = attributes};
  const Access elsewhere{DevicePtr{1}, 8, AccessMode::read};
  const auto all = [&] {
    static_cast<void>(s.enqueue(f, plain, arguments, sizes));
    static_cast<void>(s.enqueue(f, more, arguments, sizes));
    static_cast<void>(s.enqueue(f, plain, null, sizes));
    static_cast<void>(s.enqueue(f, plain, arguments, wrong));
    static_cast<void>(s.enqueue(f, plain, arguments, {}));
    static_cast<void>(s.enqueue(f, plain, arguments, sizes, {&elsewhere, 1}));
    static_cast<void>(s.enqueue(UntypedFunction(), plain, arguments, sizes));
    static_cast<void>(t.enqueue(f, plain, arguments, sizes));
  };
  all();
  EXPECT_GT(sweep([&] { EXPECT_NO_THROW(all()); }), 5);
  EXPECT_EQ(s.enqueue(f, plain, arguments, sizes), std::nullopt);
  fail_at = 1;
  const auto message = s.enqueue(f, more, arguments, sizes);
  fail_at = 0;
  EXPECT_EQ(message, "no host memory");
  s.synchronize();
}

}  // namespace
}  // namespace mojo
