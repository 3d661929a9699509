// What it is: list_ops, how each op of aten is served on the host device: what docs/ops.md is made of.
// Ordering: none. Threads: any, after the registration. Errors: none.
#pragma once

#include <string>
#include <vector>

#include "mojo/export.h"

namespace mojo::ops {

struct ListedOp {
  std::string name;     // aten::add.out
  std::string service;  // queued, waited, on_caller, by_copies, refused or missing (Service); own: a kernel of ours;
                        // composite: core makes it of other ops, for every device
  std::string reason;   // why calls of it wait: all of them, or some
};

MOJO_API std::vector<ListedOp> list_ops();

}  // namespace mojo::ops
