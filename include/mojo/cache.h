// What it is: the cache of compiled device functions, for tools: where it is, what it did, and emptying it.
// Ordering: none; nothing of it goes through a stream. Threads: any. Looks at the disk, and touches no device.
// Errors: a Status from `clear_cache`; the others have none.
#pragma once

#include <cstdint>
#include <string>

#include "mojo/export.h"
#include "mojo/status.h"

namespace mojo {

struct CacheStatistics {
  std::uint64_t memory_hits = 0, disk_hits = 0;
  std::uint64_t misses = 0;    // compilations
  std::uint64_t failures = 0;  // of those, how many gave no function
  std::uint64_t compile_milliseconds = 0, load_milliseconds = 0;
  std::uint64_t written = 0, evicted = 0;  // files
  std::uint64_t rejected = 0;              // files that were damaged, or of something else
  // What the folder holds now.
  std::uint64_t files = 0, bytes = 0, size_limit = 0;
};

// The folder that compiled functions are kept in; empty if they are not.
MOJO_API std::string cache_directory();
// What this process did.
MOJO_API CacheStatistics cache_statistics();
// What all processes did that used the folder, this one included, since it was last cleared. A process adds its counts
// after each compilation and when it exits.
MOJO_API CacheStatistics cache_totals();
// Removes the files of the cache and its counts, and what this process remembers. `removed`, if not null: how many files there were.
MOJO_API Status clear_cache(std::uint64_t* removed = nullptr) noexcept;

}  // namespace mojo
