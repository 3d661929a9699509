// What it is: the ops that are written by hand because everything else stands on them: factories, views, storage
//   changes, copies, fills, reading a value, record_stream.
// Ordering: none. Threads: once, before any of the device's tensors exist. Errors: c10::Error if an op is registered
//   twice.
#pragma once

#include <torch/library.h>

namespace mojo::ops {

// Adds the kernels to `library`, which implements aten for PrivateUse1. What is registered here must not be
// registered again; whoever fills in the rest runs after this and asks the dispatcher what is still missing.
void register_core_ops(torch::Library& library);

}  // namespace mojo::ops
