#include "drivers/host/compiler_output.h"

#include <algorithm>
#include <array>
#include <cstdlib>

namespace mojo::host {
namespace {

// Calls `look(line)` for each line until it answers true, which is then the answer.
template <class Look>
bool any_line(std::string_view text, Look&& look) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (look(text.substr(0, end))) return true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

bool has(std::string_view line, std::string_view part) { return line.find(part) != std::string_view::npos; }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Removes ":NUMBER" from the end.
bool drop_number(std::string_view& text) {
  std::size_t digits = 0;
  while (digits < text.size() && is_digit(text[text.size() - 1 - digits])) ++digits;
  if (digits == 0 || digits == text.size() || text[text.size() - 1 - digits] != ':') return false;
  text.remove_suffix(digits + 1);
  return true;
}

// FILE:LINE: error: or FILE:LINE:COLUMN: fatal error:, and the assembler's Error:
bool is_located_error(std::string_view line) {
  std::size_t at = line.find("error: ");
  if (at == std::string_view::npos) at = line.find("Error: ");
  if (at == std::string_view::npos) return false;
  std::string_view place = line.substr(0, at);
  if (place.ends_with("fatal ")) place.remove_suffix(6);
  if (!place.ends_with(": ")) return false;  // "internal compiler error: " for instance
  place.remove_suffix(2);
  return drop_number(place) && !place.empty();
}

// The machine's troubles, wherever in the source the compiler was when it met them.
bool is_the_machines(std::string_view line) {
  constexpr std::array<std::string_view, 10> words{
      "No space left on device", "Cannot allocate memory", "out of memory",         "Killed",
      "Too many open files",     "Disk quota exceeded",    "Read-only file system", "Input/output error",
      "Resource temporarily",    "memory exhausted"};
  return std::ranges::any_of(words, [&](std::string_view word) { return has(line, word); });
}

bool is_linkers_error(std::string_view line) {
  return has(line, "undefined reference to") || has(line, "undefined symbol") || has(line, "multiple definition of") ||
         has(line, "duplicate symbol");
}

// Whether the line complains of the option, by its name or by its value.
bool is_about(std::string_view line, std::string_view option) {
  if (option.size() < 2) return false;
  if (has(line, option)) return true;
  const std::size_t equals = option.find('=');
  if (equals == std::string_view::npos || equals < 2) return false;
  return has(line, option.substr(0, equals + 1)) || has(line, "'" + std::string(option.substr(equals + 1)) + "'");
}

}  // namespace

bool is_callers_fault(std::string_view output, std::span<const std::string> options) {
  return any_line(output, [&](std::string_view line) {
    if (is_the_machines(line)) return false;
    if (is_located_error(line) || is_linkers_error(line)) return true;
    if (!has(line, "error:") && !has(line, "cannot find")) return false;
    return std::ranges::any_of(options, [&](const std::string& option) { return is_about(line, option); });
  });
}

std::string missing_entry(std::string_view output, std::span<const std::string> entries) {
  std::string missing;
  any_line(output, [&](std::string_view line) {
    if (!has(line, "error:")) return false;
    if (line.starts_with(entry_file)) {
      const std::string number(line.substr(std::min(entry_file.size() + 1, line.size())));
      const std::size_t at = static_cast<std::size_t>(std::strtoul(number.c_str(), nullptr, 10));
      if (at >= 1 && at <= entries.size()) missing = entries[at - 1];
    }
    return true;
  });
  return missing;
}

std::uint64_t largest_frame(std::string_view output) {
  std::uint64_t largest = 0;
  any_line(output, [&](std::string_view line) {
    constexpr std::string_view words = "frame size ";  // "the frame size of N bytes", "stack frame size (N) exceeds"
    const std::size_t at = line.find(words);
    if (at == std::string_view::npos || !has(line, "-Wframe-larger-than")) return false;
    line.remove_prefix(std::min(line.find_first_of("0123456789", at), line.size()));
    largest = std::max<std::uint64_t>(largest, std::strtoull(std::string(line).c_str(), nullptr, 10));
    return false;
  });
  return largest;
}

std::vector<std::string> include_folders(std::string_view output) {
  std::vector<std::string> folders;
  bool listed = false;
  any_line(output, [&](std::string_view line) {
    if (line.starts_with("#include <...>")) {
      listed = true;
    } else if (listed && line.starts_with(' ')) {
      folders.emplace_back(line.substr(1));
    } else if (listed) {
      return true;
    }
    return false;
  });
  return folders;
}

}  // namespace mojo::host
