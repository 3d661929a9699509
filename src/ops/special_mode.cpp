// torch.mode into given outputs: core's kernel for that names the device types that it takes.
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/mode.h>
#include <c10/util/Exception.h>

#include <tuple>

#include "ops/same_device.h"
#include "ops/special.h"

namespace mojo::ops {

namespace {

std::tuple<at::Tensor&, at::Tensor&> mode_into(const at::Tensor& self, std::int64_t dim, bool keepdim,
                                               at::Tensor& values, at::Tensor& indices) {
  check_same_device({&self, &values, &indices});
  TORCH_CHECK(values.scalar_type() == self.scalar_type(), "expected scalar type '", self.scalar_type(), "' but got '",
              values.scalar_type(), "' for values output");
  TORCH_CHECK(indices.scalar_type() == at::kLong, "expected scalar type '", at::kLong, "' but got '",
              indices.scalar_type(), "' for indices output");
  if (self.dim() > 0 && self.numel() == 0)
    TORCH_CHECK_INDEX(self.size(dim) != 0, "mode(): Expected reduction dim ", dim, " to have non-zero size.");
  const auto [found, at] = at::mode(self, dim, keepdim);
  const bool resized = at::native::resize_output(values, found.sizes());
  at::native::resize_output(indices, at.sizes());
  at::assert_no_internal_overlap(values);
  at::assert_no_internal_overlap(indices);
  at::assert_no_overlap(values, indices);
  if (resized) at::assert_no_overlap(values, self);
  values.copy_(found);
  indices.copy_(at);
  return {values, indices};
}

}  // namespace

void register_mode(torch::Library& library) { library.impl("mode.values", TORCH_FN(mode_into)); }

}  // namespace mojo::ops
