// What it is: the counts of all processes that used one cache folder, kept in a file of that folder.
// Ordering: none. Threads and processes: any; the file is locked while it is changed.
// Errors: none: counts are a courtesy. A file that cannot be read counts from zero.
#pragma once

#include <string>

#include "jit/compile_cache.h"

namespace mojo::jit {

// Adds to the folder's counts what was counted between two states of one cache. Creates the file, not the folder.
void add_to_statistics_file(const std::string& directory, const CompileCacheStatistics& now,
                            const CompileCacheStatistics& before = {}) noexcept;
CompileCacheStatistics read_statistics_file(const std::string& directory) noexcept;
// Counts from zero again.
void remove_statistics_file(const std::string& directory) noexcept;

}  // namespace mojo::jit
