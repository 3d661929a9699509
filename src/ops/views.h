// What it is: the view ops that core has no device-independent kernel for, and those that give a tensor another storage.
// Ordering: none: they touch sizes, strides and references, no data. Threads: any. Errors: core's texts.
#pragma once

#include <torch/library.h>

namespace mojo::ops {

// as_strided, view, _reshape_alias, unfold, view_as_real, view_as_complex.
void register_views(torch::Library& library);
// set_ (all overloads that are not composite), is_set_to, _has_compatible_shallow_copy_type.
void register_set(torch::Library& library);

}  // namespace mojo::ops
