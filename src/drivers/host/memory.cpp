#include "drivers/host/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace mojo::host {
namespace {

constexpr std::uint64_t small_alignment = 512;  // what the caching allocator rounds to
constexpr std::uint64_t map_from = std::uint64_t{1} << 20;
constexpr std::uint64_t huge_page = std::uint64_t{2} << 20;
constexpr std::uint64_t most_scribbled = std::uint64_t{256} << 20;  // bytes: they count against nobody's capacity
constexpr std::size_t most_spare = 4096;  // ranges: they count against the system's bound on mappings

constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) noexcept { return (n + unit - 1) / unit * unit; }

Status out_of_memory(const std::string& what, std::uint64_t bytes, std::uint64_t free, std::uint64_t total) {
  return Status(StatusCode::out_of_memory, "host driver: out of " + what + ": " + std::to_string(bytes) +
                                               " bytes asked for, " + std::to_string(free) + " free of " +
                                               std::to_string(total));
}

}  // namespace

std::uint64_t machine_memory() noexcept {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGE_SIZE);
  std::uint64_t bytes = pages > 0 && page > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page)
                                              : std::uint64_t{1} << 30;
  if (std::FILE* limit = std::fopen("/sys/fs/cgroup/memory.max", "r")) {
    unsigned long long value = 0;  // "max", where there is none, does not parse
    if (std::fscanf(limit, "%llu", &value) == 1 && value > 0 && value < bytes) bytes = value;
    std::fclose(limit);
  }
  return bytes;
}

DeviceMemory::~DeviceMemory() {
  for (const auto& [address, segment] : segments_) give_back(address, segment);
  for (const auto& [address, segment] : pinned_) give_back(address, segment);
  for (const auto& [bytes, address] : spare_) munmap(address, bytes);
}

// What a request takes from the capacity.
DeviceMemory::Segment DeviceMemory::plan(std::uint64_t bytes) noexcept {
  if (bytes > (std::uint64_t{1} << 62)) return {bytes, true};  // more than any capacity: rounding might wrap
  if (bytes < map_from) return {round_up(bytes, small_alignment), false};
  return {round_up(bytes, static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE))), true};
}

void* DeviceMemory::obtain(const Segment& segment) noexcept {
  if (segment.bytes > (std::uint64_t{1} << 62)) return nullptr;
  if (!segment.mapped) return std::aligned_alloc(small_alignment, segment.bytes);
  const bool huge = segment.bytes >= huge_page;
  // Whole huge pages need an aligned start: map more and give the ends back.
  const std::uint64_t mapped = huge ? segment.bytes + huge_page : segment.bytes;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  if (!huge) return base;
  char* const begin = static_cast<char*>(base);
  char* const start =
      begin + (round_up(reinterpret_cast<std::uintptr_t>(begin), huge_page) - reinterpret_cast<std::uintptr_t>(begin));
  if (start != begin) munmap(begin, static_cast<std::size_t>(start - begin));
  const auto tail = static_cast<std::size_t>(begin + mapped - (start + segment.bytes));
  if (tail != 0) munmap(start + segment.bytes, tail);
#if defined(MADV_HUGEPAGE)
  madvise(start, segment.bytes, MADV_HUGEPAGE);  // a hint: its failure costs speed alone
#endif
  return start;
}

void DeviceMemory::give_back(void* address, const Segment& segment) noexcept {
  if (scribble_freed_) std::memset(address, 0xCD, segment.bytes);
  if (segment.mapped) {
    munmap(address, segment.bytes);
  } else {
    std::free(address);
  }
}

void* DeviceMemory::take_spare(const Segment& segment) noexcept {
  std::lock_guard guard(mutex_);
  const auto found = spare_.find(segment.bytes);
  if (!segment.mapped || found == spare_.end()) return nullptr;
  void* const address = found->second;
  spare_.erase(found);
  spare_bytes_ -= segment.bytes;
  return address;
}

bool DeviceMemory::drop_spare() noexcept {
  std::unordered_multimap<std::uint64_t, void*> dropped;
  {
    std::lock_guard guard(mutex_);
    dropped.swap(spare_);
    spare_bytes_ = 0;
  }
  for (const auto& [bytes, address] : dropped) munmap(address, bytes);
  return !dropped.empty();
}

bool DeviceMemory::keep_spare(void* address, const Segment& segment) noexcept {
  if (!segment.mapped) return false;
  if (scribble_freed_) std::memset(address, 0xCD, segment.bytes);
  // The pages go back to the system, unless what was written there is to be seen.
  if (!scribble_freed_ && madvise(address, segment.bytes, MADV_DONTNEED) != 0) return false;
  std::lock_guard guard(mutex_);
  const std::uint64_t most_bytes = scribble_freed_ ? most_scribbled : capacity_;
  if (spare_.size() >= most_spare || spare_bytes_ + segment.bytes > most_bytes) return false;
  try {
    spare_.emplace(segment.bytes, address);
    spare_bytes_ += segment.bytes;
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

Status DeviceMemory::allocate(std::uint64_t bytes, DevicePtr& out) noexcept {
  out = {};
  if (bytes == 0) return {};
  const std::string what = "memory of device " + std::to_string(device_);
  const Segment segment = plan(bytes);
  {
    std::lock_guard guard(mutex_);
    if (segment.bytes > capacity_ - used_) return out_of_memory(what, bytes, capacity_ - used_, capacity_);
    used_ += segment.bytes;  // the system's answer is awaited without the lock
  }
  void* address = take_spare(segment);
  if (address == nullptr) address = obtain(segment);
  if (address == nullptr && drop_spare()) address = obtain(segment);
  std::lock_guard guard(mutex_);
  try {
    if (address != nullptr) {
      segments_.emplace(address, segment);
      out = DevicePtr::from_opaque(address);
      return {};
    }
  } catch (const std::bad_alloc&) {
    give_back(address, segment);
  }
  used_ -= segment.bytes;
  return out_of_memory("host memory for " + what, bytes, capacity_ - used_, capacity_);
}

Status DeviceMemory::free(DevicePtr ptr) noexcept {
  if (!ptr) return {};
  Segment segment{};
  {
    std::lock_guard guard(mutex_);
    const auto it = segments_.find(ptr.opaque());
    if (it == segments_.end()) {
      return Status(StatusCode::invalid_argument,
                    "host driver: free of an address that is no segment of device " + std::to_string(device_));
    }
    segment = it->second;
    segments_.erase(it);
    used_ -= segment.bytes;
  }
  if (!keep_spare(ptr.opaque(), segment)) give_back(ptr.opaque(), segment);
  return {};
}

Status DeviceMemory::allocate_pinned(std::uint64_t bytes, void*& out) noexcept {
  out = nullptr;
  if (bytes == 0) return {};
  const Segment segment = plan(bytes);
  void* const address = obtain(segment);
  std::lock_guard guard(mutex_);
  try {
    if (address != nullptr) {
      pinned_.emplace(address, segment);
      out = address;
      return {};
    }
  } catch (const std::bad_alloc&) {
    give_back(address, segment);
  }
  return Status(StatusCode::out_of_memory,
                "host driver: out of pinned memory: " + std::to_string(bytes) + " bytes asked for");
}

Status DeviceMemory::free_pinned(void* ptr) noexcept {
  if (ptr == nullptr) return {};
  Segment segment{};
  {
    std::lock_guard guard(mutex_);
    const auto it = pinned_.find(ptr);
    if (it == pinned_.end()) {
      return Status(StatusCode::invalid_argument, "host driver: free_pinned of an address that is no pinned block");
    }
    segment = it->second;
    pinned_.erase(it);
  }
  give_back(ptr, segment);
  return {};
}

driver::MemoryInfo DeviceMemory::info() const noexcept {
  std::lock_guard guard(mutex_);
  return {capacity_ - used_, capacity_};
}

}  // namespace mojo::host
