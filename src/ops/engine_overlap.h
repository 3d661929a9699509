// What it is: what becomes of outputs that share memory with themselves or with inputs. Core's kernels check that when they
//   run; the caller is to hear of it at the call.
// Ordering: none. Threads: any. Errors: core's texts.
#pragma once

#include <ATen/core/Tensor.h>

#include "ops/engine_call.h"

namespace mojo::ops {

// Raises for an output of a pointwise op that shares a part of its memory with an input.
void check_pointwise_overlap(const Call& call);

// Raises if a pointwise op reads `out`, which would have to become `sizes`: core takes no other shape for it than it has.
void check_output_not_read(const Call& call, const at::Tensor& out, at::IntArrayRef sizes);

// Whether outputs of an op that is not pointwise overlap in a way that most kernels refuse. Such a call waits for its
// kernel, to raise what that says. Raises itself for an empty output that such an op also reads.
bool has_unusual_overlap(const Call& call);

}  // namespace mojo::ops
