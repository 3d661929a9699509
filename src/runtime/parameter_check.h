// What it is: the comparison of a signature that the host program states with the function that was compiled.
// Ordering: none. Threads: any. Errors: invalid_argument naming the first parameter that differs, and how.
#pragma once

#include <span>
#include <string_view>

#include "mojo/parameter.h"
#include "mojo/status.h"

namespace mojo::runtime {

Status check_parameters(std::string_view function, std::span<const ParameterDescription> stated,
                        std::span<const ParameterDescription> compiled);

}  // namespace mojo::runtime
