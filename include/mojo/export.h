// What it is: the visibility macro of the public API. Everything else in the library is hidden.
// Ordering: none. Threads: none. Errors: none.
#pragma once

#if defined(__GNUC__) || defined(__clang__)
#define MOJO_API __attribute__((visibility("default")))
#else
#define MOJO_API
#endif
