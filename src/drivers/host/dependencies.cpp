#include "drivers/host/dependencies.h"

#include <algorithm>
#include <array>
#include <vector>

namespace mojo::host {
namespace {

namespace fs = std::filesystem;

// The prerequisites of "target: a b \<newline> c", with make's quoting undone; false if it is no such rule.
bool prerequisites(std::string_view rule, std::vector<std::string>& out) {
  const std::size_t colon = rule.find(": ");
  if (colon == std::string_view::npos) return false;
  rule.remove_prefix(colon + 2);
  std::string name;
  const auto finish = [&] {
    if (!name.empty()) out.push_back(std::move(name));
    name.clear();
  };
  for (std::size_t i = 0; i < rule.size(); ++i) {
    const char c = rule[i], following = i + 1 < rule.size() ? rule[i + 1] : '\n';
    if (c == '\\' && following == '\n') {
      finish();
      ++i;
    } else if ((c == '\\' && (following == ' ' || following == '#')) || (c == '$' && following == '$')) {
      name += following;
      ++i;
    } else if (c == ' ' || c == '\n' || c == '\t') {
      finish();
    } else {
      name += c;
    }
  }
  finish();
  return true;
}

bool is_inside(const fs::path& file, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

}  // namespace

bool names_files_outside(std::string_view rule, const fs::path& workspace, std::span<const std::string> own) {
  std::vector<std::string> names;
  if (!prerequisites(rule, names)) return true;
  std::error_code error;
  std::vector<fs::path> folders{fs::weakly_canonical(workspace, error)};
  for (const std::string& folder : own) folders.push_back(fs::weakly_canonical(folder, error));
  return std::ranges::any_of(names, [&](const std::string& name) {
    const fs::path file = fs::weakly_canonical(workspace / name, error);
    return !fs::exists(file, error) ||
           std::ranges::none_of(folders, [&](const fs::path& folder) { return is_inside(file, folder); });
  });
}

bool brings_in_files(std::string_view option) {
  if (!option.starts_with('-')) return true;  // an input of its own, or the second half of an option
  constexpr std::array<std::string_view, 8> headers{"-I",       "-isystem", "-iquote", "-idirafter",
                                                    "-include", "-imacros", "-D",      "-U"};
  if (std::ranges::any_of(headers, [&](std::string_view head) { return option.starts_with(head); })) return false;
  return option.find('/') != std::string_view::npos || option.starts_with("-B") || option.starts_with("-specs") ||
         option.starts_with("-Xlinker") || option.starts_with("-fplugin");
}

}  // namespace mojo::host
