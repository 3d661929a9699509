// What it is: HostCompiler, device functions compiled with the system's C++ compiler into a shared object.
// Ordering: none. Threads: any. `identity` and `compile` run the compiler and wait for it.
// Errors: `unavailable` where there is no compiler, saying what was looked for and which setting names one; otherwise
//   as driver/compiler.h.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "driver/compiler.h"

namespace mojo::host {

class HostCompiler final : public driver::Compiler {
 public:
  // `program`: a path or a name to look for; empty: the first of c++, g++ and clang++.
  explicit HostCompiler(std::string program) : wanted_(std::move(program)) {}

  Status identity(std::string& out) noexcept override;
  Status target(std::string& out) noexcept override;
  const char* output_kind() const noexcept override { return "shared object"; }
  Status compile(const driver::CompileRequest& request, driver::CompileResult& out) noexcept override;

 private:
  Status find() noexcept;

  const std::string wanted_;
  std::mutex mutex_;  // guards what `find` finds
  std::string path_, identity_;
  std::vector<std::string> options_;  // of every compilation
};

}  // namespace mojo::host
