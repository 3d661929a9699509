#include "jit/file_system.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

namespace mojo::jit {

int FileSystem::make_directory(const std::string& path) noexcept {
  for (std::size_t end = 1; end != std::string::npos;) {
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      const int error = errno;
      struct stat there {};
      if (stat(part.c_str(), &there) != 0) return error;  // a read-only file system says so of folders that exist
    }
  }
  return 0;
}

int FileSystem::create(const std::string& path, int& descriptor) noexcept {
  descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  return descriptor < 0 ? errno : 0;
}

int FileSystem::write(int descriptor, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    if (wrote == 0) return ENOSPC;
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return 0;
}

int FileSystem::sync(int descriptor) noexcept { return fsync(descriptor) != 0 ? errno : 0; }
int FileSystem::close(int descriptor) noexcept { return ::close(descriptor) != 0 ? errno : 0; }
int FileSystem::rename(const std::string& from, const std::string& to) noexcept {
  return ::rename(from.c_str(), to.c_str()) != 0 ? errno : 0;
}
int FileSystem::remove(const std::string& path) noexcept { return unlink(path.c_str()) != 0 ? errno : 0; }

}  // namespace mojo::jit
