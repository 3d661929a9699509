// The cache of compiled functions over a compiler that is a function of the test's.
#include "jit/compile_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <latch>
#include <thread>

#include "jit/cache_file.h"
#include "jit/cache_key.h"
#include "jit/file_system.h"

namespace mojo::jit {
namespace {

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

TEST_F(CompileCaches, AMissThenMemoryThenTheDisk) {
  CompileCache cache(options());
  std::string image;
  ASSERT_TRUE(get(cache, "a", &image).ok());
  EXPECT_EQ(image, "image of a");
  ASSERT_TRUE(get(cache, "a").ok());
  const CompileCacheStatistics here = cache.statistics();
  EXPECT_EQ(here.misses, 1u);
  EXPECT_EQ(here.memory_hits, 1u);
  EXPECT_EQ(here.written, 1u);
  CompileCacheStatistics there;
  EXPECT_EQ(fetch("a", &there), "image of a");
  EXPECT_EQ(there.disk_hits, 1u);
  EXPECT_EQ(there.misses, 0u);
  EXPECT_EQ(compiler_.calls, 1);
  EXPECT_EQ(cache.disk_usage().files, 1u);
  EXPECT_EQ(cache.disk_usage().bytes, fs::file_size(only_file()));
}

TEST_F(CompileCaches, TheFolderAndItsFilesAreTheUsersAlone) {
  fetch("a");
  struct stat of {};
  ASSERT_EQ(stat(folder_.c_str(), &of), 0);
  EXPECT_EQ(of.st_mode & 07777, 0700u);
  ASSERT_EQ(stat(only_file().c_str(), &of), 0);
  EXPECT_EQ(of.st_mode & 07777, 0600u);
}

TEST_F(CompileCaches, AFolderThatOthersMayWriteToIsNotUsed) {
  fetch("a");
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  CompileCacheStatistics statistics;
  testing::internal::CaptureStderr();
  EXPECT_EQ(fetch("a", &statistics), "image of a");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("can be written by, somebody else"));
  EXPECT_EQ(statistics.disk_hits, 0u);
  EXPECT_EQ(statistics.written, 0u);
}

TEST_F(CompileCaches, EverythingThatAnImageDependsOnIsInTheKey) {
  const std::vector<std::string> ab{"a", "b"}, ba{"b", "a"}, joined{"ab"};
  const driver::SourceHeader one[] = {{"h", "xy"}}, other[] = {{"hx", "y"}};
  const driver::CompileRequest base = request("source");
  std::vector<Digest> keys;
  const auto add = [&](driver::CompileRequest r) {
    Digest key;
    ASSERT_TRUE(make_key(compiler_, r, key).ok());
    EXPECT_EQ(std::ranges::count(keys, key), 0) << keys.size();
    keys.push_back(key);
  };
  const auto with = [&](auto change) {
    driver::CompileRequest r = base;
    change(r);
    add(r);
  };
  add(base);
  with([](auto& r) { r.source = "source2"; });
  with([](auto& r) { r.source_name = "other.cpp"; });
  with([&](auto& r) { r.options = ab; });
  with([&](auto& r) { r.options = ba; });
  with([&](auto& r) { r.options = joined; });
  with([&](auto& r) { r.entries = ab; });
  with([&](auto& r) { r.headers = one; });
  with([&](auto& r) { r.headers = other; });
  compiler_.target_text = "cpu2";
  add(base);
  compiler_.identity_text = "fake 1.1";
  add(base);
  compiler_.kind = "text";
  add(base);
}

TEST_F(CompileCaches, AWrongTargetIsAMiss) {
  fetch("a");
  compiler_.target_text = "another cpu";
  CompileCacheStatistics statistics;
  fetch("a", &statistics);
  EXPECT_EQ(statistics.misses, 1u);
  EXPECT_EQ(files().size(), 2u);
  // Nor is a file taken that lies under the wrong name.
  const auto all = files();
  fs::copy_file(all[0], all[1], fs::copy_options::overwrite_existing);
  for (const char* target : {"cpu", "another cpu"}) {
    compiler_.target_text = target;
    fetch("a", &statistics);
    if (statistics.rejected != 0) return;
  }
  ADD_FAILURE() << "a file with another key was taken";
}

TEST_F(CompileCaches, ATruncatedFileIsAMissAndIsReplaced) {
  fetch("a");
  const fs::path file = only_file();
  const std::uintmax_t size = fs::file_size(file);
  for (std::uintmax_t length = 0; length < size; ++length) {
    fs::resize_file(file, length);
    CompileCacheStatistics statistics;
    ASSERT_EQ(fetch("a", &statistics), "image of a");
    ASSERT_EQ(statistics.rejected, 1u) << length;
    ASSERT_EQ(statistics.written, 1u);
    ASSERT_EQ(fs::file_size(only_file()), size);
  }
  CompileCacheStatistics statistics;
  fetch("a", &statistics);
  EXPECT_EQ(statistics.disk_hits, 1u);
}

TEST_F(CompileCaches, AFlippedByteIsAMissAndTheFileIsReplaced) {
  fetch("a");
  const fs::path file = only_file();
  const std::uintmax_t size = fs::file_size(file);
  for (std::uintmax_t at = 0; at < size; ++at) {
    {
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(static_cast<std::streamoff>(at));
      const char old = static_cast<char>(bytes.get());
      bytes.seekp(static_cast<std::streamoff>(at));
      bytes.put(static_cast<char>(old ^ 0x10));
    }
    CompileCacheStatistics statistics;
    ASSERT_EQ(fetch("a", &statistics), "image of a");
    ASSERT_EQ(statistics.rejected, 1u) << at;
    ASSERT_EQ(statistics.written, 1u);
  }
}

TEST_F(CompileCaches, WhatIsNoFileIsAMiss) {
  fetch("a");
  const fs::path file = only_file();
  fs::remove(file);
  fs::create_symlink("/etc/passwd", file);
  CompileCacheStatistics statistics;
  EXPECT_EQ(fetch("a", &statistics), "image of a");
  EXPECT_EQ(statistics.rejected, 1u);
  EXPECT_FALSE(fs::is_symlink(file));
  fs::remove(file);
  fs::create_directory(file);
  testing::internal::CaptureStderr();
  EXPECT_EQ(fetch("a", &statistics), "image of a");  // cannot be replaced: compiled, and warned about
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("not kept on disk"));
}

TEST_F(CompileCaches, AFullDiskAtAnyPointLeavesNothingHalfWritten) {
  for (int at = 1;; ++at) {
    auto faulty = std::make_shared<FaultyFiles>();
    faulty->fail_at = at;
    CompileCache cache(options(), faulty);
    testing::internal::CaptureStderr();
    std::string image;
    ASSERT_TRUE(get(cache, "a", &image).ok());
    ASSERT_TRUE(get(cache, "b").ok());
    const std::string warning = testing::internal::GetCapturedStderr();
    ASSERT_EQ(image, "image of a");
    ASSERT_TRUE(files(".tmp").empty()) << at;
    if (faulty->calls < at) {
      EXPECT_GT(at, 10);  // six calls a file, two files
      EXPECT_EQ(warning, "");
      break;
    }
    EXPECT_THAT(warning, testing::HasSubstr("No space left on device")) << at;
    EXPECT_EQ(cache.statistics().written, 1u);
    EXPECT_EQ(files().size(), 1u);
    fs::remove_all(folder_);
  }
}

TEST_F(CompileCaches, ALimitOfTheSystemOnFileSizesIsAFullDisk) {
  compiler_.padding = 100'000;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    CompileCache cache(options());
    std::string image;
    const bool ok = get(cache, "a", &image).ok() && image.size() > 100'000 && cache.statistics().written == 0;
    _exit(ok && files().empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CompileCaches, AReadOnlyFolderIsReadAndWarnedAboutOnce) {
  if (geteuid() == 0) {
    // Permissions do not bind the superuser: the call fails instead.
    auto faulty = std::make_shared<FaultyFiles>();
    faulty->fail_at = 2;  // the file's creation
    faulty->error = EROFS;
    CompileCache cache(options(), faulty);
    testing::internal::CaptureStderr();
    ASSERT_TRUE(get(cache, "a").ok());
    EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("Read-only file system"));
    return;
  }
  fetch("a");
  ASSERT_EQ(chmod(folder_.c_str(), 0500), 0);
  CompileCacheStatistics statistics;
  fetch("a", &statistics);
  EXPECT_EQ(statistics.disk_hits, 1u);
  CompileCache cache(options());
  testing::internal::CaptureStderr();
  for (const char* source : {"b", "c", "d"}) ASSERT_TRUE(get(cache, source).ok());
  const std::string warning = testing::internal::GetCapturedStderr();
  EXPECT_THAT(warning, testing::HasSubstr("Permission denied"));
  EXPECT_EQ(std::ranges::count(warning, '\n'), 1);
}

TEST_F(CompileCaches, AKilledWriterLeavesNothingThatIsTaken) {
  // The writer is killed by the system itself, halfway through the file.
  class DyingFiles final : public FileSystem {
    int write(int fd, std::span<const std::byte> bytes) noexcept override {
      static_cast<void>(FileSystem::write(fd, bytes.first(bytes.size() / 2)));
      kill(getpid(), SIGKILL);
      return EIO;
    }
  };
  const pid_t child = fork();
  if (child == 0) {
    CompileCache cache(options(), std::make_shared<DyingFiles>());
    static_cast<void>(get(cache, "a"));
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(files(".tmp").size(), 1u);
  EXPECT_TRUE(files(".image").empty());
  CompileCacheStatistics statistics;
  EXPECT_EQ(fetch("a", &statistics), "image of a");
  EXPECT_EQ(statistics.misses, 1u);
  // What it left goes once it is old enough that no writer can be behind it.
  const fs::path left = files(".tmp").front();
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(1));
  fetch("b");
  EXPECT_TRUE(files(".tmp").empty());
}

TEST_F(CompileCaches, EightProcessesOnOneKey) {
  int ready[2], go[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(go), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      close(go[1]);
      char c = 1;
      static_cast<void>(!write(ready[1], &c, 1));
      static_cast<void>(!read(go[0], &c, 1));  // until the parent closes it
      for (int round = 0; round < 20; ++round) {
        CompileCache cache(options());
        std::string image;
        if (!get(cache, "a", &image).ok() || image != "image of a" || cache.statistics().rejected != 0) _exit(1);
        if (round % 4 == 3) static_cast<void>(unlink((folder_ / "none").c_str()));
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (int i = 0; i < 8; ++i) {
    char c = 0;
    ASSERT_EQ(read(ready[0], &c, 1), 1);
  }
  close(go[0]);
  close(go[1]);
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  close(ready[0]);
  close(ready[1]);
  only_file();
}

TEST_F(CompileCaches, ManyThreadsOnOneKeyCompileItOnceAndWithoutTheLock) {
  CompileCache cache(options());
  std::latch all(9), compiling(1);
  bool looked = false;
  compiler_.during = [&] {
    compiling.count_down();
    all.wait();                               // every thread has asked by now
    looked = cache.statistics().misses == 1;  // nobody holds a lock that this would wait for
    CompiledImagePtr other;
    FakeCompiler another;
    EXPECT_TRUE(cache.get(another, request("other"), other).ok());
  };
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  const auto ask = [&] {
    std::string image;
    if (get(cache, "a", &image).ok() && image == "image of a") ++right;
  };
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      all.count_down();
      ask();
    });
  }
  compiling.wait();
  all.count_down();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
  EXPECT_TRUE(looked);
  EXPECT_EQ(compiler_.calls, 1);
}

TEST_F(CompileCaches, AFailureOfTheSourceIsRememberedAndOneOfTheMachineIsNot) {
  CompileCache cache(options());
  compiler_.failure = Status(StatusCode::invalid_argument, "kernel.cpp:1: no");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(get(cache, "a").message(), "kernel.cpp:1: no");
  EXPECT_EQ(compiler_.calls, 1);
  compiler_.failure = Status(StatusCode::unavailable, "no compiler");
  EXPECT_EQ(get(cache, "b").message(), "no compiler");
  compiler_.failure = Status();
  EXPECT_TRUE(get(cache, "b").ok());
  EXPECT_EQ(cache.statistics().failures, 2u);
  EXPECT_EQ(files().size(), 1u);
  std::uint64_t removed = 0;
  EXPECT_TRUE(cache.clear(removed).ok());
  EXPECT_EQ(removed, 1u);
  EXPECT_TRUE(get(cache, "a").ok());  // forgotten
}

TEST_F(CompileCaches, TheLeastRecentlyUsedFilesGoFirst) {
  compiler_.padding = 10'000;
  CompileCacheOptions small = options();
  small.size_limit = 35'000;  // three files
  const auto use = [&](std::string_view source) {
    CompileCache cache(small);
    EXPECT_TRUE(get(cache, source).ok());
    return cache.statistics();
  };
  const auto age = [&] {  // so that the order does not hang on the clock's resolution
    for (const fs::path& file : files())
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::seconds(10));
  };
  for (const char* source : {"a", "b", "c"}) {
    use(source);
    age();
  }
  EXPECT_EQ(use("a").disk_hits, 1u);  // so b is the oldest
  age();
  EXPECT_EQ(use("d").evicted, 1u);
  EXPECT_EQ(use("a").disk_hits, 1u);
  EXPECT_EQ(use("c").disk_hits, 1u);
  EXPECT_EQ(use("d").disk_hits, 1u);
  EXPECT_EQ(use("b").misses, 1u);
  EXPECT_EQ(files().size(), 3u);
  compiler_.padding = 40'000;  // larger than all of it
  use("e");
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(CompileCaches, MemoryIsBoundedToo) {
  compiler_.padding = 10'000;
  CompileCacheOptions small;
  small.memory_limit = 25'000;
  CompileCache cache(small);
  for (const char* source : {"a", "b", "a", "c", "a", "b"}) EXPECT_TRUE(get(cache, source).ok());
  EXPECT_EQ(cache.statistics().misses, 4u);  // b was the one to go
  EXPECT_TRUE(files().empty());
}

TEST_F(CompileCaches, ClearingTouchesOnlyFilesOfTheCache) {
  CompileCache cache(options());
  ASSERT_TRUE(get(cache, "a").ok());
  std::ofstream(folder_ / "notes.txt") << "mine";
  std::uint64_t removed = 0;
  ASSERT_TRUE(cache.clear(removed).ok());
  EXPECT_EQ(removed, 1u);
  EXPECT_EQ(only_file().filename(), "notes.txt");
  ASSERT_TRUE(get(cache, "a").ok());
  EXPECT_EQ(compiler_.calls, 2);
}

}  // namespace
}  // namespace mojo::jit
