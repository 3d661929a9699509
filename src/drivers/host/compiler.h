// What it is: HostCompiler, device functions compiled with the system's C++ compiler into a shared object.
// Ordering: none. Threads: any. `identity` and `compile` run the compiler and wait for it.
// Errors: `unavailable` where there is no compiler, saying what was looked for and which setting names one, and where the
//   compiler failed for another reason than the source; otherwise as driver/compiler.h.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "base/subprocess.h"
#include "driver/compiler.h"

namespace mojo::host {

class Workspace;

class HostCompiler final : public driver::Compiler {
 public:
  // `program`: a path or a name to look for, and no other will do. If it is empty: `preferred` where that is a program
  // that works, else the first of c++, g++ and clang++.
  explicit HostCompiler(std::string program, std::string preferred = "")
      : wanted_(std::move(program)), preferred_(std::move(preferred)) {}

  Status identity(std::string& out) noexcept override;
  Status target(std::string& out) noexcept override;
  const char* output_kind() const noexcept override { return "shared object"; }
  Status compile(const driver::CompileRequest& request, driver::CompileResult& out) noexcept override;

  // What one function may keep on the stack: of a kernel with barriers, whose threads have stacks of their own, and of
  // others, which run on the stack of a worker.
  static constexpr std::uint64_t largest_frame_with_barriers = 96u << 10;
  static constexpr std::uint64_t largest_frame_otherwise = 1u << 20;

 private:
  Status find() noexcept;
  Status try_program(const std::string& path);
  std::vector<std::string> arguments_for(const driver::CompileRequest& request) const;
  Status check_image(const driver::CompileRequest& request, const Workspace& workspace, base::ProgramResult&& result,
                     driver::CompileResult& out) const;
  Status failure(const driver::CompileRequest& request, const Workspace& workspace, const std::string& name,
                 const base::ProgramResult& result, driver::CompileResult& out) const;

  const std::string wanted_, preferred_;
  std::mutex mutex_;  // guards what `find` finds
  std::string path_, identity_;
  std::vector<std::string> options_;  // of every compilation
  std::vector<std::string> folders_;  // the compiler's own headers
};

}  // namespace mojo::host
