#include "ops/value_checks.h"

#include <ATen/ops/diff.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <ATen/ops/sum.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstdint>
#include <utility>

namespace mojo::ops {

namespace {

bool within(const at::Tensor& tensor, std::int64_t least, std::int64_t most) {
  return tensor.numel() == 0 ||
         (at::min(tensor).item<std::int64_t>() >= least && at::max(tensor).item<std::int64_t>() <= most);
}

// (grad, indices, num_weights, padding_idx, scale_grad_by_freq): it counts by index.
void embedding_dense_backward(const torch::jit::Stack& arguments) {
  const at::Tensor& indices = arguments[1].toTensor();
  if (arguments[4].toBool())
    TORCH_CHECK_INDEX(within(indices, 0, arguments[2].toSymInt().expect_int() - 1), "index out of range in self");
}

// (grad, output, data, reduce, lengths, offsets, axis, initial)
void segment_reduce_backward(const torch::jit::Stack& arguments) {
  const std::int64_t axis = arguments[6].toInt(), size = arguments[2].toTensor().size(axis);
  if (arguments[4].isTensor()) {
    const at::Tensor& lengths = arguments[4].toTensor();
    TORCH_CHECK(within(lengths, 0, size) && (lengths.dim() == 0 || within(lengths.sum(-1), 0, size)),
                "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
                "!unsafe.");
  }
  if (arguments[5].isTensor()) {
    const at::Tensor& offsets = arguments[5].toTensor();
    TORCH_CHECK(within(offsets, 0, size) && (offsets.dim() == 0 || within(offsets.diff(), 0, size)),
                "segment_reduce(): Expected offsets to rise from 0 to data.size(axis)");
  }
}

constexpr std::array<std::pair<std::string_view, ValueCheck>, 2> checks = {{
    {"embedding_dense_backward", embedding_dense_backward},
    {"_segment_reduce_backward", segment_reduce_backward},
}};

}  // namespace

ValueCheck value_check_of(std::string_view name) {
  for (const auto& [known, check] : checks)
    if (known == name) return check;
  return nullptr;
}

}  // namespace mojo::ops
