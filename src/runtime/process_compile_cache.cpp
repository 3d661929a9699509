#include "runtime/process_compile_cache.h"

#include <cstdlib>

#include "base/env.h"
#include "mojo/cache.h"
#include "mojo/error.h"
#include "runtime/registry.h"

namespace mojo {
namespace runtime {

jit::CompileCache& process_compile_cache() {
  // Leaked on purpose: a thread may still compile while the process exits.
  static auto* const cache = [] {
    base::Settings settings;
    static_cast<void>(base::load_settings(settings));
    jit::CompileCacheOptions options;
    options.directory = settings.cache_directory;
    options.size_limit = settings.cache_bytes;
    std::atexit([] { process_compile_cache().save_statistics(); });
    return new jit::CompileCache(std::move(options));
  }();
  return *cache;
}

}  // namespace runtime

namespace {

CacheStatistics with_usage(const jit::CompileCacheStatistics& counted, const jit::CompileCache& cache) {
  const jit::CompileCacheUsage usage = cache.disk_usage();
  CacheStatistics out;
  out.memory_hits = counted.memory_hits;
  out.disk_hits = counted.disk_hits;
  out.misses = counted.misses;
  out.failures = counted.failures;
  out.compile_milliseconds = counted.compile_milliseconds;
  out.load_milliseconds = counted.load_milliseconds;
  out.written = counted.written;
  out.evicted = counted.evicted;
  out.rejected = counted.rejected;
  out.files = usage.files;
  out.bytes = usage.bytes;
  out.size_limit = cache.options().size_limit;
  return out;
}

}  // namespace

std::string cache_directory() { return runtime::process_compile_cache().options().directory; }

CacheStatistics cache_statistics() {
  jit::CompileCache& cache = runtime::process_compile_cache();
  return with_usage(cache.statistics(), cache);
}

CacheStatistics cache_totals() {
  jit::CompileCache& cache = runtime::process_compile_cache();
  return with_usage(cache.folder_statistics(), cache);
}

Status clear_cache(std::uint64_t* removed) noexcept {
  std::uint64_t count = 0;
  Status status = runtime::process_compile_cache().clear(count);
  if (removed != nullptr) *removed = count;
  return status;
}

}  // namespace mojo
