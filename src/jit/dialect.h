// What it is: the headers of the kernel dialect (src/kernels/include), embedded at build time.
// Ordering: none. Threads: any; constants. Errors: none.
#pragma once

#include <span>

#include "driver/compiler.h"

namespace mojo::jit {

// For CompileRequest::headers: "mojo/kernel.h", which the compiler includes ahead of the source, and those it includes.
std::span<const driver::SourceHeader> dialect_headers() noexcept;

}  // namespace mojo::jit
