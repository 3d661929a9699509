// What it is: Workspace, a folder of one compilation's own, removed with all that is in it, and the files of it.
// Ordering: none. Threads: an object is one thread's. Errors: `unavailable` with the system's words.
#pragma once

#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "mojo/status.h"

namespace mojo::host {

class Workspace {
 public:
  Workspace() = default;
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  Status make();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The texts one after the other, in a file whose folders are made where they are missing.
Status write_file(const std::filesystem::path& path, std::initializer_list<std::string_view> texts);
bool read_file(const std::filesystem::path& path, std::vector<std::byte>& out);
bool read_file(const std::filesystem::path& path, std::string& out);

}  // namespace mojo::host
