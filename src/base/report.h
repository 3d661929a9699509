// What it is: the one way to report a failure that can neither be returned nor thrown (destructors, driver threads).
// Ordering: none. Threads: any; never called under a lock of the library. Errors: none, best effort.
#pragma once

#include "mojo/status.h"

namespace mojo::base {

// Writes "mojo: <where>: <message>" to standard error.
void report(const char* where, const Status& status) noexcept;

}  // namespace mojo::base
