#include "base/env.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>

extern char** environ;

namespace mojo::base {
namespace {

constexpr std::string_view prefix = "TORCH_MOJO_BACKEND_";

template <class Int>
std::optional<Int> parse_integer(std::string_view text) noexcept {
  Int value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

template <class Int>
bool integer_in(std::string_view text, Int low, Int high, Int& out) noexcept {
  const auto value = parse_integer<Int>(text);
  if (!value || *value < low || *value > high) return false;
  out = *value;
  return true;
}

bool parse_bytes(std::string_view text, std::uint64_t& out) noexcept {
  unsigned shift = 0;
  if (!text.empty()) {
    const auto unit = std::string_view("KMGT").find(text.back());
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  const auto value = parse_integer<std::uint64_t>(text);
  if (!value || *value == 0 || *value > (std::numeric_limits<std::uint64_t>::max() >> 1 >> shift)) return false;
  out = *value << shift;
  return true;
}

struct Entry {
  const char* name;
  const char* default_text;
  const char* accepted;
  const char* description;
  bool (*parse)(std::string_view text, Settings& into);
};

// The one table. docs/environment.md is generated from it.
constexpr std::array entries = {
    Entry{"TORCH_MOJO_BACKEND_DRIVER", "auto", "auto or host",
          "The driver. auto takes the first with a device, else the host device. Chosen once for the process.",
          [](std::string_view text, Settings& s) {
            s.driver = text;  // whether such a driver was built in is the registry's question
            return !text.empty();
          }},
    Entry{"TORCH_MOJO_BACKEND_HOST_DEVICES", "1", "an integer from 1 to 64", "How many host devices there are.",
          [](std::string_view text, Settings& s) { return integer_in(text, 1, 64, s.host_devices); }},
    Entry{"TORCH_MOJO_BACKEND_HOST_MEMORY", "three quarters of the machine's memory, divided equally",
          "a positive number of bytes, or one with the suffix K, M, G or T (powers of 1024)",
          "Memory of each host device.",
          [](std::string_view text, Settings& s) { return parse_bytes(text, s.host_memory); }},
    Entry{"TORCH_MOJO_BACKEND_HOST_PROFILE", "multi-queue", "multi-queue or single-queue",
          "single-queue makes the host device behave as a device with one queue and no events (Apple GPUs).",
          [](std::string_view text, Settings& s) {
            s.host_single_queue = text == "single-queue";
            return s.host_single_queue || text == "multi-queue";
          }},
    Entry{"TORCH_MOJO_BACKEND_HOST_SCHEDULE", "fifo", "fifo or random:SEED with SEED an unsigned 64-bit integer",
          "random:SEED makes the host device's scheduler adversarial and repeatable, so that a missing wait shows.",
          [](std::string_view text, Settings& s) {
            std::uint64_t seed = 0;
            s.host_schedule = text;
            return text == "fifo" || parse_random_schedule(text, seed);
          }},
    Entry{"TORCH_MOJO_BACKEND_HOST_WORKERS", "as many as processors, at least two", "an integer from 1 to 256",
          "Worker threads that run the host devices' streams.",
          [](std::string_view text, Settings& s) { return integer_in(text, 1, 256, s.host_workers); }},
    Entry{
        "TORCH_MOJO_BACKEND_STAGING_BYTES", "256M",
        "a positive number of bytes, or one with the suffix K, M, G or T (powers of 1024)",
        "Bound on the pinned staging memory that the queued uploads of one stream hold; a larger upload waits for its "
        "own stream until its last part is staged.",
        [](std::string_view text, Settings& s) { return parse_bytes(text, s.staging_bytes); }},
    Entry{"TORCH_MOJO_BACKEND_CHECK", "off", "off or driver",
          "driver checks each call to the driver (handles, lifetimes, bounds) and overwrites freed memory.",
          [](std::string_view text, Settings& s) {
            s.check_driver = text == "driver";
            return s.check_driver || text == "off";
          }},
    Entry{"TORCH_MOJO_BACKEND_CACHE_DIR", "$XDG_CACHE_HOME/torch-mojo-backend, or ~/.cache/torch-mojo-backend",
          "a folder's absolute path, or off", "Where compiled device functions are kept.",
          [](std::string_view text, Settings& s) {
            s.cache_directory = text == "off" ? "" : text;
            return text == "off" || text.starts_with('/');
          }},
    Entry{"TORCH_MOJO_BACKEND_CACHE_SIZE", "1G",
          "a positive number of bytes, or one with the suffix K, M, G or T (powers of 1024)",
          "How large that folder may grow; what was used least recently goes first.",
          [](std::string_view text, Settings& s) { return parse_bytes(text, s.cache_bytes); }},
    Entry{"TORCH_MOJO_BACKEND_CXX", "$CXX if it names a program that works, else the first of c++, g++, clang++",
          "a program's name or path", "The C++ compiler with which the host device compiles device functions.",
          [](std::string_view text, Settings& s) {
            s.host_compiler = text;
            return !text.empty();
          }},
};

std::string environment(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? text : "";
}

// As the XDG base directory specification says: a relative path does not count.
std::string default_cache_directory() {
  if (const std::string cache = environment("XDG_CACHE_HOME"); cache.starts_with('/')) {
    return cache + "/torch-mojo-backend";
  }
  if (const std::string home = environment("HOME"); home.starts_with('/')) return home + "/.cache/torch-mojo-backend";
  return "";
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

bool parse_random_schedule(std::string_view text, std::uint64_t& seed) noexcept {
  constexpr std::string_view head = "random:";
  if (!text.starts_with(head)) return false;
  const auto value = parse_integer<std::uint64_t>(text.substr(head.size()));
  if (value) seed = *value;
  return value.has_value();
}

Status load_settings(Settings& out) {
  Settings settings;
  settings.cache_directory = default_cache_directory();
  settings.preferred_host_compiler = environment("CXX");
  for (const Entry& entry : entries) {
    const char* text = std::getenv(entry.name);
    if (text == nullptr) continue;
    if (!entry.parse(text, settings)) {
      return {StatusCode::invalid_argument,
              std::string(entry.name) + "='" + text + "' is not valid: expected " + entry.accepted};
    }
  }
  out = std::move(settings);
  return {};
}

std::string find_program(std::string_view name) {
  if (name.empty()) return "";
  std::error_code error;
  const auto runs = [&](const std::string& path) {
    return access(path.c_str(), X_OK) == 0 && std::filesystem::is_regular_file(path, error);
  };
  if (name.find('/') != std::string_view::npos) {
    // A program that runs in another folder would not find a relative path.
    const std::string file = std::filesystem::absolute(std::string(name), error).string();
    return !error && runs(file) ? file : "";
  }
  const std::string path = environment("PATH");
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    if (std::string file = std::string(folder) + "/" + std::string(name); folder.starts_with('/') && runs(file)) {
      return file;
    }
  }
  return "";
}

std::vector<std::string> program_environment() {
  constexpr std::array<std::string_view, 12> left_out{"LC_ALL",
                                                      "CPATH",
                                                      "C_INCLUDE_PATH",
                                                      "CPLUS_INCLUDE_PATH",
                                                      "OBJC_INCLUDE_PATH",
                                                      "COMPILER_PATH",
                                                      "LIBRARY_PATH",
                                                      "GCC_EXEC_PREFIX",
                                                      "GCC_SPECS",
                                                      "CCC_OVERRIDE_OPTIONS",
                                                      "DEPENDENCIES_OUTPUT",
                                                      "SUNPRO_DEPENDENCIES"};
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view name = std::string_view(*variable).substr(0, std::string_view(*variable).find('='));
    if (std::ranges::find(left_out, name) == left_out.end()) variables.emplace_back(*variable);
  }
  variables.emplace_back("LC_ALL=C");
  return variables;
}

std::vector<SettingRow> setting_rows() {
  std::vector<SettingRow> rows;
  rows.reserve(entries.size());
  for (const Entry& entry : entries) {
    const char* text = std::getenv(entry.name);
    rows.push_back({entry.name, text ? text : entry.default_text, text ? "environment" : "default", entry.accepted,
                    entry.description});
  }
  return rows;
}

std::vector<std::string> unknown_setting_texts() {
  std::vector<std::string> texts;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    std::string_view name = *variable;
    name = name.substr(0, name.find('='));
    if (!name.starts_with(prefix)) continue;
    const auto distance = [&](const Entry& e) { return edit_distance(name, e.name); };
    const auto* nearest = std::min_element(entries.begin(), entries.end(),
                                           [&](const Entry& a, const Entry& b) { return distance(a) < distance(b); });
    if (nearest->name == name) continue;
    texts.push_back("unknown setting " + std::string(name) + " is ignored; did you mean " + nearest->name + "?");
  }
  return texts;
}

}  // namespace mojo::base
