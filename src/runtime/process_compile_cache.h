// What it is: the process's cache of compiled functions, with the settings in force.
// Ordering: none. Threads: any; made at the first call. Errors: none; settings that do not parse are the registry's to
//   report, and the cache then keeps to the defaults.
#pragma once

#include "jit/compile_cache.h"

namespace mojo::runtime {

jit::CompileCache& process_compile_cache();

}  // namespace mojo::runtime
