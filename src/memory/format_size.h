// What it is: format_size, a number of bytes for a person, in the way torch's own messages put it.
// Ordering: none. Threads: any. Errors: std::bad_alloc.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace mojo::memory {

inline std::string format_size(std::uint64_t bytes) {
  const char* unit = "GiB";
  double value = static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0);
  if (bytes < 1024) return std::to_string(bytes) + " bytes";
  if (bytes < (std::uint64_t{1} << 20)) {
    unit = "KiB";
    value *= 1024.0 * 1024.0;
  } else if (bytes < (std::uint64_t{1} << 30)) {
    unit = "MiB";
    value *= 1024.0;
  }
  char text[48];
  std::snprintf(text, sizeof text, "%.2f %s", value, unit);
  return text;
}

}  // namespace mojo::memory
