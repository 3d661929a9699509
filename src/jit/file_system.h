// What it is: the calls of the system by which the cache changes its folder, so that a test can make one fail.
// Ordering: none. Threads: any. Errors: 0, or the system's error number.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace mojo::jit {

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual int make_directory(const std::string& path) noexcept;                  // and those above it; mode 0700
  virtual int create(const std::string& path, int& descriptor) noexcept;         // must not exist; mode 0600
  virtual int write(int descriptor, std::span<const std::byte> bytes) noexcept;  // all of them
  virtual int sync(int descriptor) noexcept;
  virtual int close(int descriptor) noexcept;
  virtual int rename(const std::string& from, const std::string& to) noexcept;
  virtual int remove(const std::string& path) noexcept;
};

}  // namespace mojo::jit
