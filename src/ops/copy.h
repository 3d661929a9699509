// What it is: copies between tensors when at least one of them is on the device: `copy_`'s data movement.
// Ordering: the table of docs/stream-ordering.md. Work goes to the current stream of the device tensor; between two
//   devices to both current streams: the copy runs after the work of both, later work of both after the copy.
// Threads: any. The calling thread's current device is not changed.
// Errors: CPU's texts for shapes and overlapping memory; a failure of the conversion is kept on the stream (O-08).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include "ops/op_counter.h"

namespace mojo::ops {

// dst.copy_(src), broadcasting included. Blocks the host only where the table says so. Counts as a call of `counter`'s
// op, unless there is nothing to copy.
void copy_into(const at::Tensor& dst, const at::Tensor& src, bool non_blocking, OpCounter& counter);

// _copy_from, _copy_from_and_resize.
void register_copies(torch::Library& library);

}  // namespace mojo::ops
