#include "drivers/host/compiler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <new>
#include <vector>

#include "base/env.h"
#include "base/subprocess.h"
#include "drivers/host/cpu_features.h"

namespace mojo::host {
namespace {

constexpr driver::SourceHeader abi[] = {
#include "embedded/host_abi.inc"
};

constexpr const char* entry_file = "entry of the device function";

// The driver's own options. -march: the image stays on this machine, and `target` says which CPU it is for.
const std::vector<std::string>& fixed_options() {
  static const auto* const options = new std::vector<std::string> {
    "-std=c++20", "-O3",
#if defined(__x86_64__) || defined(__i386__)
        "-march=native",
#else
        "-mcpu=native",
#endif
        "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-fno-math-errno",
        "-fno-trapping-math", "-ffp-contract=off", "-fno-threadsafe-statics", "-Wl,-Bsymbolic", "-Wl,--as-needed"
  };
  return *options;
}

// Without AVX-512 a masked store is slower than the loop that it would vectorise.
bool masked_stores_are_slow() { return cpu_features().find("avx512vl") == std::string::npos; }

// A folder of this compilation's own, removed with all that is in it.
class Workspace {
 public:
  Status make() {
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
  ~Workspace() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

Status write_file(const std::filesystem::path& path, std::initializer_list<std::string_view> texts) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::binary);
  for (std::string_view text : texts) file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (file) return {};
  return {StatusCode::unavailable, "host compiler: cannot write " + path.string() + ": " + strerror(errno)};
}

bool read_file(const std::filesystem::path& path, std::vector<std::byte>& out) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return false;
  out.resize(static_cast<std::size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
  return static_cast<bool>(file);
}

bool identifier(std::string_view text) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !text.empty() && letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

// A file name that messages can show and no path can hide in.
std::string safe_name(std::string_view name) {
  std::string safe(name.substr(0, 64));
  for (char& c : safe) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_';
    if (!plain) c = '_';
  }
  if (safe.empty() || safe.front() == '.') safe.insert(0, "kernel");
  return safe;
}

// The entry that the compiler's first error is about, if that is all that is wrong: it was asked for and is not there.
std::string missing_entry(const std::string& log, std::span<const std::string> entries) {
  for (std::size_t start = 0; start < log.size();) {
    const std::size_t end = std::min(log.find('\n', start), log.size());
    const std::string_view line = std::string_view(log).substr(start, end - start);
    start = end + 1;
    if (line.find("error:") == std::string_view::npos) continue;
    if (!line.starts_with(entry_file)) return "";
    const std::size_t number =
        static_cast<std::size_t>(std::strtoul(line.data() + strlen(entry_file) + 1, nullptr, 10));
    return number >= 1 && number <= entries.size() ? entries[number - 1] : "";
  }
  return "";
}

}  // namespace

Status HostCompiler::find() noexcept {
  std::lock_guard guard(mutex_);
  if (!path_.empty()) return {};
  try {
    std::string path;
    if (!wanted_.empty()) {
      path = base::find_program(wanted_);
    } else {
      for (const char* name : {"c++", "g++", "clang++"}) {
        if (path.empty()) path = base::find_program(name);
      }
    }
    if (path.empty()) {
      return {StatusCode::unavailable,
              "host driver: no C++ compiler for device functions: " +
                  (wanted_.empty() ? std::string("none of c++, g++ and clang++ is in PATH") : "no program " + wanted_) +
                  "; install one, or name one with TORCH_MOJO_BACKEND_CXX"};
    }
    base::ProgramResult version;
    MOJO_RETURN_IF_ERROR(base::run_program({path, "--version"}, "", version));
    if (version.exit_status != 0 && version.exit_status != base::ProgramResult::unknown) {
      return {StatusCode::unavailable, "host driver: " + path + " --version failed: " + version.output};
    }
    struct stat file {};
    static_cast<void>(stat(path.c_str(), &file));  // follows links: the program itself
    identity_ = path + "\n" + version.output + std::to_string(file.st_size) + " " +
                std::to_string(file.st_mtim.tv_sec) + "." + std::to_string(file.st_mtim.tv_nsec) + "\n";
    options_ = fixed_options();
    const bool gcc = version.output.find("Free Software Foundation") != std::string::npos;
    if (gcc && masked_stores_are_slow()) options_.emplace_back("-fno-tree-loop-if-convert");
    for (const std::string& option : options_) identity_ += option + " ";
    identity_ += "\n";
    identity_ += abi[0].text;
    path_ = std::move(path);
    return {};
  } catch (const std::bad_alloc&) {
    return {StatusCode::out_of_memory, "host driver: no host memory to look for a compiler"};
  }
}

Status HostCompiler::identity(std::string& out) noexcept {
  MOJO_RETURN_IF_ERROR(find());
  out = identity_;
  return {};
}

Status HostCompiler::target(std::string& out) noexcept {
  out = cpu_features();
  return {};
}

Status HostCompiler::compile(const driver::CompileRequest& request, driver::CompileResult& out) noexcept {
  MOJO_RETURN_IF_ERROR(find());
  try {
    std::string entries;
    for (const std::string& entry : request.entries) {
      if (!identifier(entry)) {
        return {StatusCode::invalid_argument, "host compiler: '" + entry + "' is not a device function's name"};
      }
      entries += "MOJO_HOST_ENTRY(" + entry + ")\n";
    }
    Workspace workspace;
    MOJO_RETURN_IF_ERROR(workspace.make());
    const std::string name = safe_name(request.source_name);
    const std::string begin_entries = std::string("\n#line 1 \"") + entry_file + "\"\n";
    MOJO_RETURN_IF_ERROR(write_file(workspace.path() / name, {request.source, begin_entries, entries}));
    for (const driver::SourceHeader& header : request.headers) {
      MOJO_RETURN_IF_ERROR(write_file(workspace.path() / "include" / header.name, {header.text}));
    }
    MOJO_RETURN_IF_ERROR(write_file(workspace.path() / "include" / abi[0].name, {abi[0].text}));

    std::vector<std::string> arguments{path_};
    arguments.insert(arguments.end(), options_.begin(), options_.end());
    arguments.insert(arguments.end(), {"-iquote", "include"});
    if (!request.headers.empty()) {
      arguments.insert(arguments.end(), {"-include", "include/" + std::string(request.headers.front().name)});
    }
    arguments.insert(arguments.end(), request.options.begin(), request.options.end());
    arguments.insert(arguments.end(), {"-o", "image.so", "-x", "c++", name});
    base::ProgramResult result;
    MOJO_RETURN_IF_ERROR(base::run_program(arguments, workspace.path(), result));
    const bool made = read_file(workspace.path() / "image.so", out.image);  // a compiler that fails leaves none
    const bool may_be_well = result.exit_status == 0 || result.exit_status == base::ProgramResult::unknown;
    if (may_be_well && made) {
      out.log = std::move(result.output);
      return {};
    }
    if (result.exit_status > 128 || result.exit_status == 0) {
      return {StatusCode::unavailable, "host compiler: " + path_ + " ended with status " +
                                           std::to_string(result.exit_status) + "\n" + result.output};
    }
    if (const std::string entry = missing_entry(result.output, request.entries); !entry.empty()) {
      return {StatusCode::invalid_argument,
              "host compiler: '" + entry +
                  "' is not in the source, or is no device function (MOJO_KERNEL, giving void)\n" + result.output};
    }
    return {StatusCode::invalid_argument, "host compiler: the source does not compile\n" + result.output};
  } catch (const std::bad_alloc&) {
    return {StatusCode::out_of_memory, "host compiler: no host memory"};
  } catch (const std::exception& error) {
    return {StatusCode::unavailable, std::string("host compiler: ") + error.what()};
  }
}

}  // namespace mojo::host
