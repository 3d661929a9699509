// What it is: what the output of GCC and Clang (in the C locale) says: whose fault a failure is, how large frames are.
// Ordering: none. Threads: any. Errors: none; what is not understood is not the source's fault.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mojo::host {

// What the compiler calls the lines that ask for the entries, one line an entry.
inline constexpr std::string_view entry_file = "entry of the device function";

// Whether the compiler found fault with the source or with one of the caller's options: an error at a line of a file, a
// name that is nowhere defined, an option that it names. Anything else (no assembler, a full disk, a compiler that was
// killed) may be over when it is tried again.
bool is_callers_fault(std::string_view output, std::span<const std::string> options);

// The entry that the first error is about, if that is all that is wrong: it was asked for and is not there. Else "".
std::string missing_entry(std::string_view output, std::span<const std::string> entries);

// The largest frame that -Wframe-larger-than= warned of, in bytes; 0: none.
std::uint64_t largest_frame(std::string_view output);

// The folders that `-v` says are searched for #include <...>.
std::vector<std::string> include_folders(std::string_view output);

}  // namespace mojo::host
