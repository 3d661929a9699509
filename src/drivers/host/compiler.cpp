#include "drivers/host/compiler.h"

#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <new>

#include "base/env.h"
#include "drivers/host/compiler_output.h"
#include "drivers/host/cpu_features.h"
#include "drivers/host/dependencies.h"
#include "drivers/host/workspace.h"

namespace mojo::host {
namespace {

constexpr driver::SourceHeader abi[] = {
#include "embedded/host_abi.inc"
};

// Counts up when this file changes what it makes of the same request: older images are then not looked at.
constexpr const char* revision = "host compiler 2\n";

constexpr const char* dependency_file = "dependencies";

// The driver's own options. -march: the image stays on this machine, and `target` says which CPU it is for.
// -fstack-clash-protection touches a large frame page by page, so that it meets the guard of a stack and not what lies
// beyond.
const std::vector<std::string>& fixed_options() {
  static const auto* const options = new std::vector<std::string> {
    "-std=c++20", "-O3",
#if defined(__x86_64__) || defined(__i386__)
        "-march=native",
#else
        "-mcpu=native",
#endif
        "-fPIC", "-shared", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-fno-math-errno",
        "-fno-trapping-math", "-ffp-contract=off", "-fno-threadsafe-statics", "-Wl,-Bsymbolic", "-Wl,--as-needed",
#if defined(MOJO_KERNEL_SANITIZE_ADDRESS)
        // Device code is checked as the library is.
        "-fsanitize=address,undefined", "-fno-sanitize=vptr", "-fno-sanitize-recover=undefined",
        "-fno-omit-frame-pointer",
#elif defined(MOJO_KERNEL_SANITIZE_THREAD)
        "-fsanitize=thread", "-fno-omit-frame-pointer",
#endif
  };
  return *options;
}

// A sanitizer's runtime is in the process already, and is that of the compiler that the library was built with.
#if defined(MOJO_KERNEL_COMPILER)
constexpr std::array<const char*, 1> usual_programs{MOJO_KERNEL_COMPILER};
#else
constexpr std::array<const char*, 3> usual_programs{"c++", "g++", "clang++"};
#endif

// Without AVX-512 a masked store is slower than the loop that it would vectorise.
bool masked_stores_are_slow() { return cpu_features().find("avx512vl") == std::string::npos; }

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

// Whether the image waits at barriers: then it exports the function, whose name is nowhere otherwise.
bool has_barrier(const std::vector<std::byte>& image) {
  constexpr std::string_view name("\0mojo_host_barrier\0", 19);
  const std::string_view bytes(reinterpret_cast<const char*>(image.data()), image.size());
  return bytes.find(name) != std::string_view::npos;
}

Status no_memory(const char* what) {
  return {StatusCode::out_of_memory, std::string("host compiler: no host memory ") + what};
}

}  // namespace

Status HostCompiler::try_program(const std::string& path) {
  base::ProgramResult version, probe;
  MOJO_RETURN_IF_ERROR(base::run_program({path, "--version"}, "", version));
  if (version.exit_status != 0 && version.exit_status != base::ProgramResult::unknown) {
    return {StatusCode::unavailable, "host driver: " + path + " --version failed: " + version.output};
  }
  std::vector<std::string> options = fixed_options();
  const bool gcc = version.output.find("Free Software Foundation") != std::string::npos;
  if (gcc && masked_stores_are_slow()) options.emplace_back("-fno-tree-loop-if-convert");
  // Both compilers have it, but not for every processor.
  const std::string probes = "-fstack-clash-protection";
  MOJO_RETURN_IF_ERROR(
      base::run_program({path, "-v", "-fsyntax-only", "-Werror", probes, "-x", "c++", "/dev/null"}, "", probe));
  if (probe.exit_status == 0) options.push_back(probes);

  struct stat file {};
  static_cast<void>(stat(path.c_str(), &file));  // follows links: the program itself
  std::string identity = revision + path + "\n" + version.output + std::to_string(file.st_size) + " " +
                         std::to_string(file.st_mtim.tv_sec) + "." + std::to_string(file.st_mtim.tv_nsec) + "\n";
  for (const std::string& option : options) identity += option + " ";
  identity += "\n";
  identity += abi[0].text;
  folders_ = include_folders(probe.output);
  std::erase(folders_, "/usr/local/include");  // not the compiler's, and changes without it
  options_ = std::move(options);
  identity_ = std::move(identity);
  path_ = path;
  return {};
}

Status HostCompiler::find() noexcept {
  try {
    const std::lock_guard guard(mutex_);
    if (!path_.empty()) return {};
    std::vector<std::string> names{wanted_};
    if (wanted_.empty()) {
      names = {preferred_};
      names.insert(names.end(), usual_programs.begin(), usual_programs.end());
    }
    Status status;
    for (const std::string& name : names) {
      const std::string path = base::find_program(name);
      if (path.empty()) continue;
      Status tried = try_program(path);
      if (tried.ok()) return tried;
      if (status.ok()) status = std::move(tried);
    }
    if (!status.ok()) return status;
    return {StatusCode::unavailable,
            "host driver: no C++ compiler for device functions: " +
                (wanted_.empty() ? std::string("none of c++, g++ and clang++ is in PATH") : "no program " + wanted_) +
                "; install one, or name one with TORCH_MOJO_BACKEND_CXX"};
  } catch (const std::bad_alloc&) {
    return no_memory("to look for a compiler");
  }
}

Status HostCompiler::identity(std::string& out) noexcept {
  MOJO_RETURN_IF_ERROR(find());
  try {
    out = identity_;
    return {};
  } catch (const std::bad_alloc&) {
    return no_memory("to say what it is");
  }
}

Status HostCompiler::target(std::string& out) noexcept {
  try {
    out = cpu_features();
    return {};
  } catch (const std::bad_alloc&) {
    return no_memory("to say what it compiles for");
  }
}

// All but what is made of the source, whose name comes last.
std::vector<std::string> HostCompiler::arguments_for(const driver::CompileRequest& request) const {
  std::vector<std::string> arguments{path_};
  arguments.insert(arguments.end(), options_.begin(), options_.end());
  arguments.insert(arguments.end(), {"-iquote", "include"});
  if (!request.headers.empty()) {
    arguments.insert(arguments.end(), {"-include", "include/" + std::string(request.headers.front().name)});
  }
  arguments.insert(arguments.end(), request.options.begin(), request.options.end());
  return arguments;
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
    const std::string begin_entries = "\n#line 1 \"" + std::string(entry_file) + "\"\n";
    MOJO_RETURN_IF_ERROR(write_file(workspace.path() / name, {request.source, begin_entries, entries}));
    for (const driver::SourceHeader& header : request.headers) {
      MOJO_RETURN_IF_ERROR(write_file(workspace.path() / "include" / header.name, {header.text}));
    }
    MOJO_RETURN_IF_ERROR(write_file(workspace.path() / "include" / abi[0].name, {abi[0].text}));

    std::vector<std::string> arguments = arguments_for(request);
    arguments.insert(arguments.end(), {"-Wframe-larger-than=" + std::to_string(largest_frame_with_barriers),
                                       "-Wno-error=frame-larger-than=", "-MD", "-MF", dependency_file, "-o", "image.so",
                                       "-x", "c++", name});
    base::ProgramResult result;
    MOJO_RETURN_IF_ERROR(base::run_program(arguments, workspace.path(), result));
    const bool made = read_file(workspace.path() / "image.so", out.image);  // a compiler that fails leaves none
    if (made && (result.exit_status == 0 || result.exit_status == base::ProgramResult::unknown)) {
      return check_image(request, workspace, std::move(result), out);
    }
    return failure(request, workspace, name, result, out);
  } catch (const std::bad_alloc&) {
    return no_memory("to compile");
  } catch (const std::exception& error) {
    return {StatusCode::unavailable, std::string("host compiler: ") + error.what()};
  }
}

Status HostCompiler::check_image(const driver::CompileRequest& request, const Workspace& workspace,
                                 base::ProgramResult&& result, driver::CompileResult& out) const {
  std::string rule;
  out.uncacheable = !read_file(workspace.path() / dependency_file, rule) ||
                    names_files_outside(rule, workspace.path(), folders_) ||
                    std::ranges::any_of(request.options, brings_in_files);
  const bool barrier = has_barrier(out.image);
  const std::uint64_t frame = largest_frame(result.output);
  const std::uint64_t limit = barrier ? largest_frame_with_barriers : largest_frame_otherwise;
  if (frame > limit) {
    return {StatusCode::invalid_argument,
            "host compiler: a device function keeps " + std::to_string(frame) + " bytes on the stack; " +
                (barrier ? "where there are barriers" : "without barriers") + " a function may keep " +
                std::to_string(limit) + ": put large arrays into shared or global memory\n" + result.output};
  }
  out.log = std::move(result.output);
  return {};
}

Status HostCompiler::failure(const driver::CompileRequest& request, const Workspace& workspace, const std::string& name,
                             const base::ProgramResult& result, driver::CompileResult& out) const {
  out.image.clear();
  const bool ended = result.exit_status > 0 && result.exit_status <= 128;
  const bool unknown = result.exit_status == base::ProgramResult::unknown;
  if ((!ended && !unknown) || !is_callers_fault(result.output, request.options)) {
    return {StatusCode::unavailable, "host compiler: " + path_ + " ended with status " +
                                         std::to_string(result.exit_status) + ", and not for the source's sake\n" +
                                         result.output};
  }
  // With another file there it may compile.
  if (!request.options.empty() || request.source.find("include") != std::string_view::npos) {
    std::vector<std::string> arguments = arguments_for(request);
    arguments.insert(arguments.end(), {"-M", "-MG", "-MF", dependency_file, "-x", "c++", name});
    base::ProgramResult only_rule;
    std::string rule;
    std::error_code ignored;
    std::filesystem::remove(workspace.path() / dependency_file, ignored);
    const bool ran = base::run_program(arguments, workspace.path(), only_rule).ok();
    out.uncacheable = !ran || !read_file(workspace.path() / dependency_file, rule) ||
                      names_files_outside(rule, workspace.path(), folders_) ||
                      std::ranges::any_of(request.options, brings_in_files);
  }
  if (const std::string entry = missing_entry(result.output, request.entries); !entry.empty()) {
    return {StatusCode::invalid_argument,
            "host compiler: '" + entry +
                "' is not in the source, or is no device function (MOJO_KERNEL, giving void)\n" + result.output};
  }
  return {StatusCode::invalid_argument, "host compiler: the source does not compile\n" + result.output};
}

}  // namespace mojo::host
