// What it is: Share, how many blocks of a launch one worker takes at a time.
// Ordering: none. Threads: an object is one worker's, for one launch. Errors: none.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mojo::host {

class Share {
 public:
  // How long a share should take: long against taking it, short for a queue that becomes ready.
  static constexpr std::uint64_t nanoseconds = 50'000;
  // More than this many blocks take longer than that, however little each of them does.
  static constexpr std::uint64_t largest = std::uint64_t{1} << 20;

  // Of `left` blocks, with up to `workers` taking them: at least 1, and never so many that the others find none.
  std::uint64_t wanted(std::uint64_t left, int workers) const noexcept {
    return std::clamp<std::uint64_t>(left / (2 * static_cast<std::uint64_t>(workers)), 1, size_);
  }
  // A share was run, and took so long.
  void took(std::uint64_t time) noexcept {
    if (time < nanoseconds) {
      size_ = std::min(size_ * 2, largest);
    } else if (time > 4 * nanoseconds && size_ > 1) {
      size_ /= 2;
    }
  }

 private:
  std::uint64_t size_ = 1;
};

}  // namespace mojo::host
