// What it is: check_same_device, for the kernels that core does not check for.
// Ordering: none. Threads: any. Errors: core's text.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <initializer_list>

namespace mojo::ops {

// Every tensor that is there is on the device of the first, which then is one of ours: the dispatcher found one.
inline void check_same_device(std::initializer_list<const at::Tensor*> tensors) {
  const at::Tensor& first = **tensors.begin();
  for (const at::Tensor* tensor : tensors) {
    TORCH_CHECK(!tensor->defined() || tensor->device() == first.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", first.device(),
                " and ", tensor->device(), "!");
  }
}

}  // namespace mojo::ops
