// What it is: DiskCache, a folder of compiled images, one file a key, bounded in size.
// Ordering: a file is there whole or not at all: it is written under another name, synced, and renamed.
// Threads: any, and any number of processes. Errors: a file that is not right in every way is not there. `store` says why
//   nothing was kept. A folder that others may write to is not used, since what is in it would be run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "jit/compile_cache.h"
#include "jit/file_system.h"
#include "jit/sha256.h"
#include "mojo/status.h"

namespace mojo::jit {

class DiskCache {
 public:
  DiskCache(std::string directory, std::uint64_t size_limit, std::shared_ptr<FileSystem> files)
      : directory_(std::move(directory)), size_limit_(size_limit), files_(std::move(files)) {}

  enum class Found { yes, no, damaged };
  Found load(const Digest& key, CompiledImage& out);
  void remove(const Digest& key) noexcept;
  // `evicted`: how many other files had to go.
  Status store(const Digest& key, const CompiledImage& image, std::uint64_t& evicted);

  // Whether what is in the folder may be trusted: it is there, and nobody else may write to it.
  Status check_directory() const;

  struct Usage {
    std::uint64_t files = 0, bytes = 0;
  };
  Usage usage() const;
  // Removes every file of the cache but those that are being written, and says how many there were.
  Status clear(std::uint64_t& removed);
  const std::string& directory() const noexcept { return directory_; }

 private:
  struct Entry;
  std::string path_of(const Digest& key) const { return directory_ + "/" + hex(key) + ".image"; }
  std::vector<Entry> entries() const;
  std::uint64_t evict(const std::string& keep);

  const std::string directory_;
  const std::uint64_t size_limit_;
  const std::shared_ptr<FileSystem> files_;
};

}  // namespace mojo::jit
