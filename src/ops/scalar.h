// What it is: reading one value of a device tensor on the host.
// Ordering: blocks the host until the current stream of the tensor's device, and that stream alone, has done its work.
// Threads: any; no lock and not the GIL is held meanwhile. Errors: what queued work of that stream raised (O-08).
#pragma once

#include <torch/library.h>

namespace mojo::ops {

// _local_scalar_dense.
void register_scalar(torch::Library& library);

}  // namespace mojo::ops
