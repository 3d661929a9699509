// What the tests of the cache share: a compiler that is a function of the test's, a disk that fails, a folder that goes.
#pragma once

#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "jit/compile_cache.h"
#include "jit/file_system.h"

namespace mojo::jit {

namespace fs = std::filesystem;

class FakeCompiler final : public driver::Compiler {
 public:
  Status identity(std::string& out) noexcept override {
    out = identity_text;
    return {};
  }
  Status target(std::string& out) noexcept override {
    out = target_text;
    return {};
  }
  const char* output_kind() const noexcept override { return kind.c_str(); }
  Status compile(const driver::CompileRequest& request, driver::CompileResult& out) noexcept override {
    ++calls;
    if (during) during();
    out.uncacheable = uncacheable;
    if (!failure.ok()) return failure;
    const std::string image = "image of " + std::string(request.source) + std::string(padding, '.');
    const auto bytes = std::as_bytes(std::span(image));
    out.image.assign(bytes.begin(), bytes.end());
    out.log = "a warning";
    return {};
  }

  std::string identity_text = "fake 1.0", target_text = "cpu", kind = "bytes";
  std::atomic<int> calls{0};
  std::function<void()> during;
  Status failure;
  bool uncacheable = false;
  std::size_t padding = 0;
};

// Fails one call, by its number, with an error of the system.
class FaultyFiles final : public FileSystem {
 public:
  int make_directory(const std::string& path) noexcept override {
    return fails() ? error : FileSystem::make_directory(path);
  }
  int create(const std::string& path, int& fd) noexcept override {
    return fails() ? error : FileSystem::create(path, fd);
  }
  int write(int fd, std::span<const std::byte> bytes) noexcept override {
    if (!fails()) return FileSystem::write(fd, bytes);
    static_cast<void>(FileSystem::write(fd, bytes.first(bytes.size() / 2)));  // as a disk that fills up
    return error;
  }
  int sync(int fd) noexcept override { return fails() ? error : FileSystem::sync(fd); }
  int close(int fd) noexcept override {
    const int result = FileSystem::close(fd);
    return fails() ? error : result;
  }
  int rename(const std::string& a, const std::string& b) noexcept override {
    return fails() ? error : FileSystem::rename(a, b);
  }

  int fail_at = 0, error = ENOSPC, calls = 0;

 private:
  bool fails() { return ++calls == fail_at; }
};

class CompileCaches : public testing::Test {
 public:
  CompileCaches() {
    std::string pattern = (fs::temp_directory_path() / "mojo-cache-test-XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    folder_ = root_ / "a" / "cache";
  }
  ~CompileCaches() override {
    static_cast<void>(chmod(folder_.c_str(), 0700));
    fs::remove_all(root_);
  }

  CompileCacheOptions options() const {
    CompileCacheOptions o;
    o.directory = folder_.string();
    return o;
  }
  static driver::CompileRequest request(std::string_view source) {
    driver::CompileRequest r;
    r.source = source;
    return r;
  }
  Status get(CompileCache& cache, std::string_view source, std::string* image = nullptr) {
    CompiledImagePtr out;
    Status status = cache.get(compiler_, request(source), out);
    if (status.ok()) {
      EXPECT_EQ(out->log, "a warning");
      if (image != nullptr) image->assign(reinterpret_cast<const char*>(out->bytes.data()), out->bytes.size());
    }
    return status;
  }
  // Through a cache that has nothing in memory.
  std::string fetch(std::string_view source, CompileCacheStatistics* statistics = nullptr) {
    CompileCache cache(options());
    std::string image;
    const Status status = get(cache, source, &image);
    EXPECT_TRUE(status.ok()) << status.message();
    if (statistics != nullptr) *statistics = cache.statistics();
    return image;
  }
  std::vector<fs::path> files(const std::string& suffix = "") const {
    std::vector<fs::path> found;
    if (!fs::exists(folder_)) return found;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().filename() == "statistics") continue;  // tests of its own
      if (entry.path().string().ends_with(suffix)) found.push_back(entry.path());
    }
    std::ranges::sort(found);
    return found;
  }
  fs::path only_file() const {
    const auto all = files();
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? fs::path() : all.front();
  }

 protected:
  fs::path root_, folder_;
  FakeCompiler compiler_;
};

}  // namespace mojo::jit
