// What it is: OpCounter, how often an op was queued and how often it made the host wait, and why. Each op has one: the
//   engine's in its plan, the others beside their kernel.
// Ordering: none. Threads: any; counting takes no lock.
// Errors: none. A figure read while other threads count may be a moment old.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "mojo/export.h"

namespace mojo::ops {

struct OpCount {
  std::string name;          // aten::add.out
  std::uint64_t queued = 0;  // calls that returned before the work had run
  std::uint64_t waited = 0;  // calls that made the host wait
  std::string reason;        // why, if any waited; several with "; " between them
};

// Lives as long as the process once it has counted, and so do its name and the reasons: literals, or a plan's name.
class OpCounter {
 public:
  explicit constexpr OpCounter(const char* name) noexcept : name_(name) {}
  OpCounter(const OpCounter&) = delete;
  OpCounter& operator=(const OpCounter&) = delete;

  const char* name() const noexcept { return name_; }
  void queued() noexcept {
    queued_.fetch_add(1, std::memory_order_relaxed);
    list();
  }
  void waited(const char* reason) noexcept {
    waited_.fetch_add(1, std::memory_order_relaxed);
    note(reason);
    list();
  }

 private:
  friend std::vector<OpCount> op_counts();
  friend void reset_op_counts() noexcept;

  void note(const char* reason) noexcept;
  void list() noexcept {
    if (!listed_.load(std::memory_order_relaxed)) [[unlikely]]
      list_now();
  }
  void list_now() noexcept;

  const char* const name_;
  OpCounter* next_ = nullptr;  // in the list of all that have counted
  std::atomic<bool> listed_{false};
  std::atomic<std::uint64_t> queued_{0}, waited_{0};
  std::array<std::atomic<const char*>, 4> reasons_{};  // different ones; a fifth would not be kept
};

// One entry for each op that was called since the last reset, in no order.
MOJO_API std::vector<OpCount> op_counts();
MOJO_API void reset_op_counts() noexcept;

}  // namespace mojo::ops
