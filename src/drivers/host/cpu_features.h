// What it is: the CPU that images compiled for "native" run on, as a text: another text, another image.
// Ordering: none. Threads: any; looked at once in a process. Errors: none; what cannot be learnt is left out.
#pragma once

#include <string>

namespace mojo::host {

const std::string& cpu_features();

}  // namespace mojo::host
