// Compiled functions that were kept since another day, through the C++ API.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "drivers/host/compiler.h"
#include "jit/cache_key.h"
#include "jit/dialect.h"
#include "jit/disk_cache.h"
#include "mojo/cache.h"
#include "support/host_fixture.h"

namespace mojo::test {
namespace {

namespace fs = std::filesystem;

using FunctionCache = HostRuntime;

driver::CompileResult compile(const driver::CompileRequest& request) {
  host::HostCompiler compiler("");
  driver::CompileResult out;
  const Status status = compiler.compile(request, out);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

TEST_F(FunctionCache, AnImageThatCanNoLongerBeLoadedIsCompiledAgain) {
  if (cache_directory().empty()) GTEST_SKIP() << "nothing is kept on disk";
  // A source that no run of this test has had before.
  const std::string source = "// " + std::to_string(getpid()) + " " + std::to_string(time(nullptr)) +
                             "\nextern \"C\" MOJO_KERNEL void f(mojo::Buffer<int> x) { x[0] = 7; }\n";
  const std::vector<std::string> entries{"f"};
  driver::CompileRequest request;
  request.source = source;
  request.entries = entries;
  request.headers = jit::dialect_headers();

  // Its image, needing a library that is gone by now.
  const fs::path library = fs::temp_directory_path() / ("libmojo_gone_" + std::to_string(getpid()) + ".so");
  driver::CompileRequest needing = request;
  const std::vector<std::string> options{"-Wl,-soname," + library.filename().string()};
  needing.options = options;
  const driver::CompileResult gone = compile(needing);
  std::ofstream(library, std::ios::binary)
      .write(reinterpret_cast<const char*>(gone.image.data()), static_cast<std::streamsize>(gone.image.size()));
  const std::vector<std::string> with{"-Wl,--no-as-needed", library.string()};
  needing.options = with;
  jit::CompiledImage image;
  image.bytes = compile(needing).image;
  fs::remove(library);

  host::HostCompiler compiler("");
  jit::Digest key;
  ASSERT_TRUE(jit::make_key(compiler, request, key).ok());
  jit::DiskCache disk(cache_directory(), std::uint64_t{1} << 30, std::make_shared<jit::FileSystem>());
  std::uint64_t evicted = 0;
  const Status stored = disk.store(key, image, evicted);
  ASSERT_TRUE(stored.ok()) << stored.message();

  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const CacheStatistics before = cache_statistics();
  const auto f = ctx.compile_function<void(Buffer<std::int32_t>)>(source, "f");
  const CacheStatistics after = cache_statistics();
  EXPECT_EQ(after.disk_hits - before.disk_hits, 1U);
  EXPECT_EQ(after.rejected - before.rejected, 1U);
  EXPECT_EQ(after.misses - before.misses, 1U);
  auto x = ctx.allocate<std::int32_t>(1, s);
  s.enqueue_function(f, {}, x);
  std::vector<std::int32_t> back(1);
  s.copy(back, x);
  EXPECT_EQ(back[0], 7);
  // The good one took its place.
  jit::CompiledImage kept;
  EXPECT_EQ(disk.load(key, kept), jit::DiskCache::Found::yes);
  EXPECT_NE(kept.bytes, image.bytes);
  disk.remove(key);
}

TEST_F(FunctionCache, AFreshImageThatCannotBeLoadedIsAnErrorAndNotCompiledForEver) {
  const DeviceContext ctx(0);
  const std::string source =
      "extern \"C\" void is_nowhere();\nextern \"C\" MOJO_KERNEL void f() { is_nowhere(); }\n// " +
      std::to_string(getpid());
  for (int i = 0; i < 2; ++i) {
    try {
      static_cast<void>(ctx.compile_function<void()>(source, "f"));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), StatusCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("is_nowhere"), std::string::npos) << error.what();
    }
  }
  EXPECT_LE(cache_statistics().misses, 2U);
}

}  // namespace
}  // namespace mojo::test
