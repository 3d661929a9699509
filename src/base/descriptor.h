// What it is: Descriptor, which closes a file descriptor.
// Ordering: none. Threads: one. Errors: none; a negative number is no file.
#pragma once

#include <unistd.h>

namespace mojo::base {

class Descriptor {
 public:
  explicit Descriptor(int value) noexcept : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const noexcept { return value_; }

 private:
  const int value_;
};

}  // namespace mojo::base
