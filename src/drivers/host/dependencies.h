// What it is: whether an image depends on files that no key of a cache has: what its source and options bring in.
// Ordering: none. Threads: any; looks at the file system. Errors: none; what is not understood counts as more.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace mojo::host {

// Whether the rule that the compiler wrote for make (-MD) names a file outside `workspace`, in which it ran, and outside
// the compiler's `own` folders, or one that is not there (-MG).
bool names_files_outside(std::string_view rule, const std::filesystem::path& workspace,
                         std::span<const std::string> own);

// Whether an option names a file or folder in another way than as a place of headers, which such a rule accounts for.
bool brings_in_files(std::string_view option);

}  // namespace mojo::host
