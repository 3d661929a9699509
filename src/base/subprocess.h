// What it is: runs a program and collects what it writes. No shell is involved.
// Ordering: none. Threads: any; no fork handler of this process runs. Blocks until the program ends.
// Errors: `unavailable` if the program could not be started, `internal` if its output could not be read. That it failed
//   is no error here but an exit status.
#pragma once

#include <string>
#include <vector>

#include "mojo/status.h"

namespace mojo::base {

struct ProgramResult {
  int exit_status = 0;  // 128 + the signal's number if a signal ended it, as a shell says it
  std::string output;   // standard output and standard error together
};

// `arguments[0]` is the program's path. `folder`, if not empty, is where it runs.
Status run_program(const std::vector<std::string>& arguments, const std::string& folder, ProgramResult& out);

}  // namespace mojo::base
