// The cache of compiled functions: what is a hit, what is in the key, who compiles, what goes first, and its counts.
#include <sys/wait.h>

#include <fstream>
#include <latch>
#include <thread>

#include "jit/cache_key.h"
#include "jit/statistics_file.h"
#include "unit/jit/cache_fixture.h"

namespace mojo::jit {
namespace {

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

TEST_F(CompileCaches, FailuresAndLogsCountAsMemoryToo) {
  CompileCacheOptions small;
  small.memory_limit = 25'000;
  CompileCache cache(small);
  compiler_.failure = Status(StatusCode::invalid_argument, std::string(10'000, 'e'));
  for (const char* source : {"a", "b", "a", "c", "a", "b"}) {
    EXPECT_EQ(get(cache, source).code(), StatusCode::invalid_argument);
  }
  EXPECT_EQ(compiler_.calls, 4);  // b was the one to go
  compiler_.failure = Status();
  EXPECT_TRUE(get(cache, "d").ok());
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(get(cache, "short " + std::to_string(i)).ok());
  compiler_.calls = 0;
  EXPECT_TRUE(get(cache, "short 0").ok());  // entries without much in them are not free either
  EXPECT_EQ(compiler_.calls, 1);
}

TEST_F(CompileCaches, WhatDependsOnMoreThanTheKeyIsNotKept) {
  CompileCache cache(options());
  compiler_.uncacheable = true;
  for (int i = 1; i <= 2; ++i) {
    EXPECT_TRUE(get(cache, "a").ok());
    EXPECT_EQ(compiler_.calls, i);
  }
  compiler_.failure = Status(StatusCode::invalid_argument, "no such file");
  for (int i = 1; i <= 2; ++i) {
    EXPECT_EQ(get(cache, "a").message(), "no such file");
    EXPECT_EQ(compiler_.calls, 2 + i);
  }
  EXPECT_TRUE(files().empty());
}

TEST_F(CompileCaches, AnImageFromTheDiskThatCannotBeLoadedIsForgotten) {
  fetch("a");
  CompileCache cache(options());
  const auto image_of = [&](CompileCache& of) {
    CompiledImagePtr image;
    EXPECT_TRUE(of.get(compiler_, request("a"), image).ok());
    return image;
  };
  const CompiledImagePtr old = image_of(cache), same = image_of(cache);
  EXPECT_EQ(old, same);
  EXPECT_TRUE(cache.reject(compiler_, request("a"), old));
  EXPECT_TRUE(files().empty());
  EXPECT_EQ(cache.statistics().rejected, 1u);
  const CompiledImagePtr fresh = image_of(cache);
  EXPECT_EQ(compiler_.calls, 2);
  // Another thread that had the old one.
  EXPECT_TRUE(cache.reject(compiler_, request("a"), same));
  EXPECT_EQ(image_of(cache), fresh);
  EXPECT_EQ(files().size(), 1u);
  // It was compiled just now: another will be no better.
  EXPECT_FALSE(cache.reject(compiler_, request("a"), fresh));
  EXPECT_EQ(image_of(cache), fresh);
  EXPECT_EQ(compiler_.calls, 2);
  // One that memory has no more.
  CompileCacheOptions none = options();
  none.memory_limit = 0;
  CompileCache forgetful(none);
  EXPECT_TRUE(forgetful.reject(compiler_, request("a"), image_of(forgetful)));
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

TEST_F(CompileCaches, TheFolderHasTheCountsOfAllThatUsedIt) {
  fetch("a");
  for (int i = 0; i < 4; ++i) {
    // A process of its own, as the counts are saved.
    const pid_t child = fork();
    if (child == 0) {
      CompileCache cache(options());
      const bool ok = get(cache, "a").ok() && get(cache, "a").ok() && get(cache, "b" + std::to_string(i)).ok();
      cache.save_statistics();
      cache.save_statistics();  // adds nothing
      _exit(ok ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
  CompileCache cache(options());
  const CompileCacheStatistics all = cache.folder_statistics();
  EXPECT_EQ(all.misses, 5u);
  EXPECT_EQ(all.written, 5u);
  EXPECT_EQ(all.disk_hits, 4u);
  EXPECT_EQ(all.memory_hits, 4u);
  ASSERT_TRUE(get(cache, "a").ok());
  EXPECT_EQ(cache.folder_statistics().disk_hits, 5u);
  std::uint64_t removed = 0;
  ASSERT_TRUE(cache.clear(removed).ok());
  EXPECT_EQ(cache.folder_statistics(), CompileCacheStatistics());
  EXPECT_EQ(cache.statistics().disk_hits, 1u);  // of the object
  ASSERT_TRUE(get(cache, "a").ok());
  EXPECT_EQ(cache.folder_statistics().misses, 1u);
  EXPECT_EQ(cache.folder_statistics().disk_hits, 0u);
}

TEST_F(CompileCaches, CountsOfThreadsAndProcessesAddUp) {
  fs::create_directories(folder_);
  CompileCacheStatistics one;
  one.misses = 1;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (int round = 0; round < 200; ++round) add_to_statistics_file(folder_.string(), one);
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(read_statistics_file(folder_.string()).misses, 800u);
}

TEST_F(CompileCaches, AFileOfCountsThatIsNoneCountsFromZero) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "statistics") << "misses 12x\nfuture_count 3\ndisk_hits 7\nmemory_hits";
  EXPECT_EQ(read_statistics_file(folder_.string()).misses, 0u);
  EXPECT_EQ(read_statistics_file(folder_.string()).disk_hits, 7u);
  fs::remove(folder_ / "statistics");
  fs::create_symlink(root_ / "elsewhere", folder_ / "statistics");
  CompileCacheStatistics one;
  one.misses = 1;
  add_to_statistics_file(folder_.string(), one);
  EXPECT_FALSE(fs::exists(root_ / "elsewhere"));
}

}  // namespace
}  // namespace mojo::jit
