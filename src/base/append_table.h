// What it is: AppendTable, a growing array of pointers that is read without a lock.
// Ordering: a reader that learnt an index from the writer sees the entry.
// Threads: readers any number at any time; writers one at a time (the caller's lock).
// Errors: at() returns null for an index that was never appended.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace mojo::base {

// Entries live until the table does; the table is meant for objects that live until the process ends. Block k holds
// 64 << k entries, so 26 blocks cover every 32-bit index and a look-up is two loads.
template <class T>
class AppendTable {
 public:
  AppendTable() = default;
  AppendTable(const AppendTable&) = delete;
  AppendTable& operator=(const AppendTable&) = delete;
  ~AppendTable() {
    for (auto& block : blocks_) delete[] block.load(std::memory_order_relaxed);
  }

  T* at(std::uint64_t index) const noexcept {
    if (index >= size_.load(std::memory_order_acquire)) return nullptr;
    const auto [block, offset] = place(index);
    return blocks_[block].load(std::memory_order_acquire)[offset].load(std::memory_order_acquire);
  }

  std::uint64_t append(T* entry) {
    const std::uint64_t index = size_.load(std::memory_order_relaxed);
    const auto [block, offset] = place(index);
    auto* entries = blocks_[block].load(std::memory_order_relaxed);
    if (entries == nullptr) {
      entries = new std::atomic<T*>[first_block << block]();
      blocks_[block].store(entries, std::memory_order_release);
    }
    entries[offset].store(entry, std::memory_order_release);
    size_.store(index + 1, std::memory_order_release);
    return index;
  }

  std::uint64_t size() const noexcept { return size_.load(std::memory_order_acquire); }

 private:
  static constexpr std::uint64_t first_block = 64;
  struct Place {
    std::size_t block;
    std::uint64_t offset;
  };
  static Place place(std::uint64_t index) noexcept {
    const auto block = static_cast<std::size_t>(std::bit_width(index / first_block + 1) - 1);
    return {block, index - first_block * ((std::uint64_t{1} << block) - 1)};
  }

  std::array<std::atomic<std::atomic<T*>*>, 26> blocks_{};
  std::atomic<std::uint64_t> size_{0};
};

}  // namespace mojo::base
