// What it is: changing the size of a device tensor in place, its memory included.
// Ordering: growing the memory enqueues, on the current stream of the tensor's device, a copy of what was there;
//   the old memory is freed, in the order of its own stream.
// Threads: any. Errors: core's texts; c10::OutOfMemoryError, and then the tensor is unchanged.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/OptionalArrayRef.h>
#include <torch/library.h>

namespace mojo::ops {

// Gives `tensor` new sizes and, with `strides`, strides (contiguous else), and more memory where it has too little.
void resize_in_place(const at::Tensor& tensor, at::IntArrayRef sizes, at::OptionalIntArrayRef strides = std::nullopt);

// resize_.
void register_resize(torch::Library& library);

}  // namespace mojo::ops
