#include "jit/disk_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <string_view>

#include "base/descriptor.h"
#include "jit/cache_file.h"

namespace mojo::jit {
namespace {

constexpr std::string_view image_suffix = ".image", temporary_suffix = ".tmp";
// A temporary file so old has lost its writer.
constexpr std::int64_t abandoned_seconds = 600;
constexpr off_t largest_file = off_t{1} << 30;

bool read_all(int descriptor, std::vector<std::byte>& out) {
  for (std::size_t done = 0; done < out.size();) {
    const ssize_t got = read(descriptor, out.data() + done, out.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    done += static_cast<std::size_t>(got);
  }
  return true;
}

std::int64_t seconds_now() noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec;
}

// Names of our own only: hexadecimal digits and a suffix.
bool is_ours(std::string_view name) {
  const std::size_t digits = name.find_first_not_of("0123456789abcdef");
  return digits == 64 && (name.substr(digits) == image_suffix || name.ends_with(temporary_suffix));
}

}  // namespace

struct DiskCache::Entry {
  std::string path;
  std::uint64_t bytes = 0;
  timespec used{};
  bool temporary = false;

  // Whether a writer may be behind it yet.
  bool in_the_making(std::int64_t now) const noexcept { return temporary && used.tv_sec + abandoned_seconds >= now; }
};

Status DiskCache::check_directory() const {
  struct stat there {};
  if (lstat(directory_.c_str(), &there) != 0) {
    return {StatusCode::unavailable, directory_ + ": " + strerror(errno)};
  }
  if (S_ISLNK(there.st_mode) && stat(directory_.c_str(), &there) != 0) {
    return {StatusCode::unavailable, directory_ + ": " + strerror(errno)};
  }
  if (!S_ISDIR(there.st_mode)) return {StatusCode::unavailable, directory_ + " is not a folder"};
  if (there.st_uid != geteuid() || (there.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return {StatusCode::unavailable, directory_ + " belongs to, or can be written by, somebody else"};
  }
  return {};
}

DiskCache::Found DiskCache::load(const Digest& key, CompiledImage& out) {
  if (!check_directory().ok()) return Found::no;
  const base::Descriptor file(open(path_of(key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.get() < 0) return errno == ENOENT ? Found::no : Found::damaged;
  struct stat there {};
  if (fstat(file.get(), &there) != 0 || !S_ISREG(there.st_mode) || there.st_uid != geteuid() ||
      there.st_size > largest_file) {
    return Found::damaged;
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(there.st_size));
  if (!read_all(file.get(), bytes) || !decode_cache_file(key, bytes, out)) return Found::damaged;
  static_cast<void>(futimens(file.get(), nullptr));  // used now; where that cannot be noted, it ages
  return Found::yes;
}

void DiskCache::remove(const Digest& key) noexcept {
  try {
    if (check_directory().ok()) static_cast<void>(files_->remove(path_of(key)));
  } catch (const std::bad_alloc&) {  // it stays, and the next one to load it is here again
  }
}

Status DiskCache::store(const Digest& key, const CompiledImage& image, std::uint64_t& evicted) {
  evicted = 0;
  const std::vector<std::byte> bytes = encode_cache_file(key, image);
  if (bytes.size() > size_limit_) return {};  // it would push out everything, and itself
  if (const int error = files_->make_directory(directory_); error != 0) {
    return {StatusCode::unavailable, "cannot make " + directory_ + ": " + strerror(error)};
  }
  MOJO_RETURN_IF_ERROR(check_directory());

  static std::atomic<std::uint32_t> counter{0};
  const std::string path = path_of(key);
  const std::string temporary = directory_ + "/" + hex(key) + "." + std::to_string(getpid()) + "." +
                                std::to_string(counter.fetch_add(1)) + std::string(temporary_suffix);
  int descriptor = -1;
  int error = files_->create(temporary, descriptor);
  if (error == EEXIST) {  // of a process that had this number before
    static_cast<void>(files_->remove(temporary));
    error = files_->create(temporary, descriptor);
  }
  if (error != 0) return {StatusCode::unavailable, "cannot write to " + directory_ + ": " + strerror(error)};
  error = files_->write(descriptor, bytes);
  if (error == 0) error = files_->sync(descriptor);
  const int close_error = files_->close(descriptor);
  if (error == 0) error = close_error;
  if (error == 0) error = files_->rename(temporary, path);
  if (error != 0) {
    static_cast<void>(files_->remove(temporary));
    return {StatusCode::unavailable, "cannot write to " + directory_ + ": " + strerror(error)};
  }
  evicted = evict(path);
  return {};
}

std::vector<DiskCache::Entry> DiskCache::entries() const {
  std::vector<Entry> found;
  DIR* const folder = opendir(directory_.c_str());
  if (folder == nullptr) return found;
  while (const dirent* item = readdir(folder)) {
    const std::string_view name = item->d_name;
    if (!is_ours(name)) continue;
    Entry entry;
    entry.path = directory_ + "/" + std::string(name);
    entry.temporary = name.ends_with(temporary_suffix);
    struct stat there {};
    if (lstat(entry.path.c_str(), &there) != 0) continue;
    entry.bytes = static_cast<std::uint64_t>(there.st_size);
    entry.used = there.st_mtim;
    found.push_back(std::move(entry));
  }
  closedir(folder);
  return found;
}

std::uint64_t DiskCache::evict(const std::string& keep) {
  std::vector<Entry> all = entries();
  const std::int64_t now = seconds_now();
  std::uint64_t bytes = 0, evicted = 0;
  for (const Entry& entry : all) {
    if (entry.temporary && !entry.in_the_making(now)) {
      static_cast<void>(files_->remove(entry.path));
    } else {
      bytes += entry.bytes;
    }
  }
  if (bytes <= size_limit_) return 0;
  std::ranges::sort(all, [](const Entry& a, const Entry& b) {
    return a.used.tv_sec != b.used.tv_sec ? a.used.tv_sec < b.used.tv_sec : a.used.tv_nsec < b.used.tv_nsec;
  });
  for (const Entry& entry : all) {
    if (bytes <= size_limit_) break;
    if (entry.temporary || entry.path == keep) continue;
    if (files_->remove(entry.path) != 0) continue;  // another process was first
    bytes -= std::min(bytes, entry.bytes);
    ++evicted;
  }
  return evicted;
}

DiskCache::Usage DiskCache::usage() const {
  Usage sum;
  for (const Entry& entry : entries()) {
    if (entry.temporary) continue;
    ++sum.files;
    sum.bytes += entry.bytes;
  }
  return sum;
}

Status DiskCache::clear(std::uint64_t& removed) {
  removed = 0;
  Status first;
  const std::int64_t now = seconds_now();
  for (const Entry& entry : entries()) {
    if (entry.in_the_making(now)) continue;
    const int error = files_->remove(entry.path);
    if (error == 0) {
      removed += entry.temporary ? 0 : 1;
    } else if (error != ENOENT && first.ok()) {
      first = Status(StatusCode::unavailable, "cannot remove " + entry.path + ": " + strerror(error));
    }
  }
  return first;
}

}  // namespace mojo::jit
