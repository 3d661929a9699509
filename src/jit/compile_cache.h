// What it is: CompileCache, where compiled device functions come from: memory, the disk, or the driver's compiler.
// Ordering: none. Threads: any. Threads that ask for one key at a time wait for one compilation; no lock is held while
//   compiling. `get` blocks for as long as the compiler takes.
// Errors: the compiler's. A source that did not compile is remembered with its log, and not compiled again. What depends on
//   files that the key does not have is not kept at all. Trouble with the disk is never an error: the function is
//   compiled, and one warning says why the cache is of no use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "driver/compiler.h"
#include "mojo/status.h"

namespace mojo::jit {

class FileSystem;

struct CompileCacheOptions {
  std::string directory;                                 // empty: nothing is kept on disk
  std::uint64_t size_limit = std::uint64_t{1} << 30;     // bytes on disk; the least recently used files go first
  std::uint64_t memory_limit = std::uint64_t{64} << 20;  // bytes in memory, of images and of what compilers said
};

// An image ready for Device::load_module.
struct CompiledImage {
  std::vector<std::byte> bytes;
  std::string log;  // the compiler's, warnings for instance
  bool from_disk = false;
};
using CompiledImagePtr = std::shared_ptr<const CompiledImage>;

struct CompileCacheStatistics {
  std::uint64_t memory_hits = 0, disk_hits = 0, misses = 0, failures = 0;  // failures: sources that did not compile
  std::uint64_t compile_milliseconds = 0, load_milliseconds = 0;
  std::uint64_t written = 0, evicted = 0, rejected = 0;  // files; rejected: there, but damaged or of something else

  bool operator==(const CompileCacheStatistics&) const = default;
};

struct CompileCacheUsage {
  std::uint64_t files = 0, bytes = 0;
};

class CompileCache {
 public:
  explicit CompileCache(CompileCacheOptions options);
  CompileCache(CompileCacheOptions options, std::shared_ptr<FileSystem> files);  // for tests
  ~CompileCache();
  CompileCache(const CompileCache&) = delete;
  CompileCache& operator=(const CompileCache&) = delete;

  Status get(driver::Compiler& compiler, const driver::CompileRequest& request, CompiledImagePtr& out) noexcept;
  // For an image from `get` that cannot be loaded, whatever its checksum says (another C library, a library that is gone):
  // forgets it, in memory and on disk, unless another has taken its place. Whether `get` may now give a better one: it was
  // not compiled just now.
  bool reject(driver::Compiler& compiler, const driver::CompileRequest& request,
              const CompiledImagePtr& image) noexcept;
  CompileCacheStatistics statistics() const noexcept;  // of this object
  // Of all that used the folder, this object included; `clear` sets them to zero.
  CompileCacheStatistics folder_statistics() noexcept;
  // Adds what was counted since the last time to the counts in the folder: after each compilation, and for the owner to
  // call before it goes.
  void save_statistics() noexcept;
  const CompileCacheOptions& options() const noexcept;
  CompileCacheUsage disk_usage() const noexcept;
  // Forgets what is kept in memory, failures too, and removes the cache's files. Compilations under way are not disturbed.
  Status clear(std::uint64_t& removed) noexcept;

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace mojo::jit
