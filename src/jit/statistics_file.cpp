#include "jit/statistics_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "base/descriptor.h"

namespace mojo::jit {
namespace {

// One line a count: its name, a blank, a number. Lines of another version are passed over.
struct Count {
  std::string_view name;
  std::uint64_t CompileCacheStatistics::*member;
};
constexpr std::array<Count, 9> counts{{
    {"memory_hits", &CompileCacheStatistics::memory_hits},
    {"disk_hits", &CompileCacheStatistics::disk_hits},
    {"misses", &CompileCacheStatistics::misses},
    {"failures", &CompileCacheStatistics::failures},
    {"compile_milliseconds", &CompileCacheStatistics::compile_milliseconds},
    {"load_milliseconds", &CompileCacheStatistics::load_milliseconds},
    {"written", &CompileCacheStatistics::written},
    {"evicted", &CompileCacheStatistics::evicted},
    {"rejected", &CompileCacheStatistics::rejected},
}};

std::string path_in(const std::string& directory) { return directory + "/statistics"; }

CompileCacheStatistics read_from(int descriptor) {
  std::array<char, 4096> buffer;
  const ssize_t got = pread(descriptor, buffer.data(), buffer.size(), 0);
  std::string_view text(buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
  CompileCacheStatistics found;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : text.size());
    for (const Count& count : counts) {
      if (!line.starts_with(count.name) || line.substr(count.name.size()).substr(0, 1) != " ") continue;
      const char* const digits = line.data() + count.name.size() + 1;
      std::uint64_t value = 0;
      const auto [end, error] = std::from_chars(digits, line.data() + line.size(), value);
      if (error == std::errc() && end == line.data() + line.size()) found.*count.member = value;
    }
  }
  return found;
}

std::string as_text(const CompileCacheStatistics& statistics) {
  std::string text;
  for (const Count& count : counts) {
    text.append(count.name).append(" ").append(std::to_string(statistics.*count.member)).append("\n");
  }
  return text;
}

bool is_ours(int descriptor) {
  struct stat there {};
  return fstat(descriptor, &there) == 0 && S_ISREG(there.st_mode) && there.st_uid == geteuid();
}

}  // namespace

void add_to_statistics_file(const std::string& directory, const CompileCacheStatistics& now,
                            const CompileCacheStatistics& before) noexcept {
  try {
    const base::Descriptor file(
        open(path_in(directory).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
    if (file.get() < 0 || !is_ours(file.get())) return;
    while (flock(file.get(), LOCK_EX) != 0) {
      if (errno != EINTR) return;  // a file system without locks
    }
    CompileCacheStatistics sum = read_from(file.get());
    for (const Count& count : counts) sum.*count.member += now.*count.member - before.*count.member;
    const std::string text = as_text(sum);
    // Counts only grow, so does the text: it needs no cutting, and a write that is cut short is repaired by the next.
    static_cast<void>(pwrite(file.get(), text.data(), text.size(), 0) < 0);
  } catch (const std::exception&) {
    // No memory: these counts are lost.
  }
}

CompileCacheStatistics read_statistics_file(const std::string& directory) noexcept {
  try {
    const base::Descriptor file(open(path_in(directory).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.get() < 0 || !is_ours(file.get())) return {};
    return read_from(file.get());
  } catch (const std::exception&) {
    return {};
  }
}

void remove_statistics_file(const std::string& directory) noexcept {
  try {
    static_cast<void>(unlink(path_in(directory).c_str()));
  } catch (const std::exception&) {
    // No memory for the path.
  }
}

}  // namespace mojo::jit
