// What can go wrong with the cache's folder and its files: each is a miss, and nothing half written is ever taken.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <fstream>

#include "unit/jit/cache_fixture.h"

namespace mojo::jit {
namespace {

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
  // Clearing spares it too, as long as a writer may be behind it.
  std::uint64_t removed = 0;
  EXPECT_TRUE(CompileCache(options()).clear(removed).ok());
  EXPECT_EQ(removed, 1u);
  ASSERT_EQ(files(".tmp").size(), 1u);
  // What it left goes once it is old enough that no writer can be behind it.
  const fs::path left = files(".tmp").front();
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(1));
  fetch("b");
  EXPECT_TRUE(files(".tmp").empty());
  std::ofstream(left.string()) << "again";
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_TRUE(CompileCache(options()).clear(removed).ok());
  EXPECT_TRUE(files().empty());
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

}  // namespace
}  // namespace mojo::jit
