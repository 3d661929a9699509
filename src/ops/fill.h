// What it is: filling a device tensor with one value.
// Ordering: enqueues on the current stream of the tensor's device. `fill_` with a value that is a tensor of another
//   device, the CPU apart, reads that value and so waits for that device's current stream.
// Threads: any. Errors: CPU's texts, for a value that the dtype cannot hold too; all of them at the call.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <torch/library.h>

#include "ops/op_counter.h"

namespace mojo::ops {

// Counts as a call of `counter`'s op, unless there is nothing to fill.
void fill_with(const at::Tensor& tensor, const at::Scalar& value, OpCounter& counter);

// fill_.Scalar, fill_.Tensor, zero_.
void register_fill(torch::Library& library);

}  // namespace mojo::ops
