// What it is: how device tensors come into being: the kernels of `empty` and `empty_strided`, and the short way to
//   an uninitialised tensor for the other ops.
// Ordering: the memory is valid in the order of the current stream of its device; nothing is enqueued, except that
//   the kernels fill it where torch.utils.deterministic.fill_uninitialized_memory asks for that.
// Threads: any. The calling thread's current device is neither read (where an index is given) nor changed.
// Errors: core's texts for sizes and strides; c10::OutOfMemoryError.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <torch/library.h>

namespace mojo::ops {

// Uninitialised tensors of device `index` (-1: the current one), never filled. The caller vouches for the sizes (they
// come from a tensor or from Meta); overflow is still checked.
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, c10::DeviceIndex index);
at::Tensor empty_contiguous(at::IntArrayRef sizes, at::ScalarType dtype, c10::DeviceIndex index);

// empty.memory_format, empty_strided.
void register_factories(torch::Library& library);
// arange.start_out.
void register_ranges(torch::Library& library);

}  // namespace mojo::ops
