#include "drivers/host/workspace.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <fstream>
#include <string>

namespace mojo::host {
namespace {

template <class Bytes>
bool read_into(const std::filesystem::path& path, Bytes& out) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return false;
  out.resize(static_cast<std::size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
  return static_cast<bool>(file);
}

}  // namespace

Status Workspace::make() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  std::string pattern = (error ? std::filesystem::path("/tmp") : parent) / "mojo-compile-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) {
    return {StatusCode::unavailable,
            "host compiler: cannot make a temporary folder " + pattern + ": " + strerror(errno)};
  }
  path_ = pattern;
  return {};
}

Workspace::~Workspace() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

Status write_file(const std::filesystem::path& path, std::initializer_list<std::string_view> texts) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::binary);
  for (std::string_view text : texts) file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (file) return {};
  return {StatusCode::unavailable, "host compiler: cannot write " + path.string() + ": " + strerror(errno)};
}

bool read_file(const std::filesystem::path& path, std::vector<std::byte>& out) { return read_into(path, out); }
bool read_file(const std::filesystem::path& path, std::string& out) { return read_into(path, out); }

}  // namespace mojo::host
