// What it is: the key of a compilation: a digest of all that its result depends on.
// Ordering: none. Threads: any. May run the compiler once, to learn what it is. Errors: those of the compiler's questions.
#pragma once

#include <cstdint>

#include "driver/compiler.h"
#include "jit/sha256.h"
#include "mojo/status.h"

namespace mojo::jit {

// Counts up when key or file format change, so that older files are not looked at.
inline constexpr std::uint32_t cache_schema = 1;

// SHA-256 over schema, source and its name, headers, options and entries in order, target, compiler identity and output
// kind, each text with its length ahead of it, so that no two requests run together to the same bytes.
Status make_key(driver::Compiler& compiler, const driver::CompileRequest& request, Digest& out);

}  // namespace mojo::jit
