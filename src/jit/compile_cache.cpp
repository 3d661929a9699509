#include "jit/compile_cache.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>

#include "base/report.h"
#include "jit/cache_key.h"
#include "jit/disk_cache.h"
#include "jit/file_system.h"
#include "jit/statistics_file.h"

namespace mojo::jit {
namespace {

class Stopwatch {
 public:
  std::uint64_t microseconds() const {
    const auto passed = std::chrono::steady_clock::now() - began_;
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(passed).count());
  }

 private:
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// One compilation, under way or over. `done` and what follows are guarded by the cache's mutex.
struct Flight {
  bool done = false;
  Status status;
  CompiledImagePtr image;
  std::uint64_t used = 0;  // a count that grows

  // What it takes in memory, all in all.
  std::uint64_t bytes() const noexcept {
    return 256 + (image != nullptr ? image->bytes.size() + image->log.size() : status.message().size());
  }
};

Status no_memory() { return {StatusCode::out_of_memory, "no host memory to compile a device function"}; }

}  // namespace

struct CompileCache::Impl {
  Impl(CompileCacheOptions given, std::shared_ptr<FileSystem> files)
      : options(std::move(given)), disk(options.directory, options.size_limit, std::move(files)) {}

  bool on_disk() const { return !options.directory.empty(); }
  // `keep`: whether what it gives, or why it fails, is so for whoever asks with this key.
  Status obtain(const Digest& key, driver::Compiler& compiler, const driver::CompileRequest& request,
                CompiledImagePtr& out, bool& keep);
  void land(const Digest& key, Flight& flight, Status&& status, const CompiledImagePtr& image, bool keep) noexcept;
  using Flights = std::map<Digest, std::shared_ptr<Flight>>;
  void forget(Flights::iterator at) noexcept;  // under the mutex
  void keep_within_limit() noexcept;           // under the mutex
  void warn(const Status& status);

  const CompileCacheOptions options;
  DiskCache disk;
  std::mutex mutex;
  std::condition_variable landed;
  Flights flights;
  std::uint64_t uses = 0, kept_bytes = 0;  // under the mutex
  std::mutex saved_mutex;
  CompileCacheStatistics saved;  // what the folder's counts have of this object; under saved_mutex
  const pid_t process = getpid();
  std::atomic<bool> warned{false};
  std::atomic<std::uint64_t> memory_hits{0}, disk_hits{0}, misses{0}, failures{0}, written{0}, evicted{0}, rejected{0};
  std::atomic<std::uint64_t> compile_microseconds{0}, load_microseconds{0};
};

CompileCache::CompileCache(CompileCacheOptions options)
    : CompileCache(std::move(options), std::make_shared<FileSystem>()) {}
CompileCache::CompileCache(CompileCacheOptions options, std::shared_ptr<FileSystem> files)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(files))) {}
CompileCache::~CompileCache() = default;

const CompileCacheOptions& CompileCache::options() const noexcept { return impl_->options; }

Status CompileCache::get(driver::Compiler& compiler, const driver::CompileRequest& request,
                         CompiledImagePtr& out) noexcept {
  Impl& self = *impl_;
  try {
    Digest key;
    MOJO_RETURN_IF_ERROR(make_key(compiler, request, key));
    auto flight = std::make_shared<Flight>();
    {
      std::unique_lock guard(self.mutex);
      const auto [place, first] = self.flights.try_emplace(key, flight);
      if (!first) {
        flight = place->second;
        self.landed.wait(guard, [&] { return flight->done; });
        flight->used = ++self.uses;
        if (flight->status.ok()) {
          ++self.memory_hits;
          out = flight->image;
        }
        return flight->status;
      }
    }
    CompiledImagePtr image;
    Status status;
    bool keep = false;
    try {
      status = self.obtain(key, compiler, request, image, keep);
    } catch (const std::bad_alloc&) {
      status = no_memory();
    }
    self.land(key, *flight, std::move(status), image, keep);
    if (image == nullptr || !image->from_disk) save_statistics();  // it was compiled, or tried
    out = std::move(image);
    return flight->status;  // as it landed: nothing changes it any more
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
}

// Nothing in it may fail: others wait.
void CompileCache::Impl::land(const Digest& key, Flight& flight, Status&& status, const CompiledImagePtr& image,
                              bool keep) noexcept {
  {
    std::lock_guard guard(mutex);
    flight.done = true;
    flight.status = std::move(status);
    flight.image = image;
    flight.used = ++uses;
    if (keep) {
      kept_bytes += flight.bytes();
      keep_within_limit();
    } else {
      flights.erase(key);
    }
  }
  landed.notify_all();
}

bool CompileCache::reject(driver::Compiler& compiler, const driver::CompileRequest& request,
                          const CompiledImagePtr& image) noexcept {
  Impl& self = *impl_;
  if (!image->from_disk) return false;
  try {
    Digest key;
    if (!make_key(compiler, request, key).ok()) return false;
    {
      std::lock_guard guard(self.mutex);
      const auto at = self.flights.find(key);
      if (at != self.flights.end()) {
        if (at->second->image != image) return true;
        self.forget(at);
      }
      // Under the mutex, so that the file of a compilation that begins now is not the one that goes.
      self.disk.remove(key);
    }
    ++self.rejected;
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

Status CompileCache::Impl::obtain(const Digest& key, driver::Compiler& compiler, const driver::CompileRequest& request,
                                  CompiledImagePtr& out, bool& keep) {
  auto image = std::make_shared<CompiledImage>();
  if (on_disk()) {
    const Stopwatch watch;
    const DiskCache::Found found = disk.load(key, *image);
    load_microseconds += watch.microseconds();
    if (found == DiskCache::Found::yes) {
      ++disk_hits;
      image->from_disk = true;
      out = std::move(image);
      keep = true;
      return {};
    }
    if (found == DiskCache::Found::damaged) ++rejected;
  }
  ++misses;
  driver::CompileResult result;
  const Stopwatch watch;
  Status status = compiler.compile(request, result);
  compile_microseconds += watch.microseconds();
  if (!status.ok()) {
    ++failures;
    // Where it is not the source's fault, the next call may have better luck.
    keep = status.code() == StatusCode::invalid_argument && !result.uncacheable;
    return status;
  }
  image->bytes = std::move(result.image);
  image->log = std::move(result.log);
  keep = !result.uncacheable;
  if (on_disk() && keep) {
    std::uint64_t gone = 0;
    if (const Status stored = disk.store(key, *image, gone); stored.ok()) {
      ++written;
      evicted += gone;
    } else {
      warn(stored);
    }
  }
  out = std::move(image);
  return {};
}

void CompileCache::Impl::forget(Flights::iterator at) noexcept {
  kept_bytes -= at->second->bytes();
  flights.erase(at);
}

void CompileCache::Impl::keep_within_limit() noexcept {
  while (kept_bytes > options.memory_limit) {
    auto oldest = flights.end();
    for (auto it = flights.begin(); it != flights.end(); ++it) {
      if (!it->second->done) continue;
      if (oldest == flights.end() || it->second->used < oldest->second->used) oldest = it;
    }
    if (oldest == flights.end()) return;
    forget(oldest);
  }
}

void CompileCache::Impl::warn(const Status& status) {
  if (!warned.exchange(true)) {
    base::report("compiled functions are not kept on disk", status);
  }
}

CompileCacheStatistics CompileCache::statistics() const noexcept {
  const Impl& self = *impl_;
  CompileCacheStatistics s;
  s.memory_hits = self.memory_hits;
  s.disk_hits = self.disk_hits;
  s.misses = self.misses;
  s.failures = self.failures;
  s.compile_milliseconds = self.compile_microseconds / 1000;
  s.load_milliseconds = self.load_microseconds / 1000;
  s.written = self.written;
  s.evicted = self.evicted;
  s.rejected = self.rejected;
  return s;
}

void CompileCache::save_statistics() noexcept {
  Impl& self = *impl_;
  // What a forked child counts up to here is its parent's to save.
  if (!self.on_disk() || getpid() != self.process) return;
  const std::lock_guard guard(self.saved_mutex);
  const CompileCacheStatistics now = statistics();
  if (now == self.saved) return;
  try {
    if (!self.disk.check_directory().ok()) return;
  } catch (const std::bad_alloc&) {
    return;
  }
  add_to_statistics_file(self.options.directory, now, self.saved);
  self.saved = now;
}

CompileCacheStatistics CompileCache::folder_statistics() noexcept {
  if (!impl_->on_disk()) return {};
  save_statistics();
  return read_statistics_file(impl_->options.directory);
}

CompileCacheUsage CompileCache::disk_usage() const noexcept {
  try {
    if (!impl_->on_disk()) return {};
    const DiskCache::Usage usage = impl_->disk.usage();
    return {usage.files, usage.bytes};
  } catch (const std::bad_alloc&) {
    return {};
  }
}

Status CompileCache::clear(std::uint64_t& removed) noexcept {
  removed = 0;
  try {
    {
      std::lock_guard guard(impl_->mutex);
      std::erase_if(impl_->flights, [](const auto& each) { return each.second->done; });
      impl_->kept_bytes = 0;
    }
    if (!impl_->on_disk()) return {};
    {
      const std::lock_guard guard(impl_->saved_mutex);
      impl_->saved = statistics();
      remove_statistics_file(impl_->options.directory);
    }
    return impl_->disk.clear(removed);
  } catch (const std::bad_alloc&) {
    return no_memory();
  }
}

}  // namespace mojo::jit
