// What it is: checks of values that a backward kernel of core takes for granted, since its forward has made them. Here the
//   forward may have failed while the backward was queued behind it, and the kernel would write where it must not.
// Ordering: none; called on the worker, before the kernel. Threads: any. Errors: those of the forward kernel.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>

namespace mojo::ops {

using ValueCheck = void (*)(const torch::jit::Stack& arguments);

// For an op of core by its name without overload, "embedding_dense_backward"; null for most.
ValueCheck value_check_of(std::string_view name);

}  // namespace mojo::ops
