// What it is: runs a program and collects what it writes. No shell is involved.
// Ordering: none. Threads: any; no fork handler of this process runs. Blocks until the program ends.
// Errors: `unavailable` if the program could not be started. That it failed is no error here but an exit status.
#pragma once

#include <string>
#include <vector>

#include "mojo/status.h"

namespace mojo::base {

struct ProgramResult {
  // 128 + the signal's number if a signal ended it, as a shell says it; `unknown` where this process ignores SIGCHLD, so
  // that the system keeps no account of its children.
  int exit_status = 0;
  static constexpr int unknown = -1;
  std::string output;  // standard output and standard error together
};

// `arguments[0]` is the program's path. `folder`, if not empty, is where it runs.
Status run_program(const std::vector<std::string>& arguments, const std::string& folder, ProgramResult& out);

}  // namespace mojo::base
