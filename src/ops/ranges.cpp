// arange: core's Meta kernel for it is written in Python, and loads a compiler at its first call.
#include <ATen/EmptyTensor.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/ops/arange.h>
#include <c10/util/Exception.h>

#include <utility>

#include "mojo/device_stream.h"
#include "ops/copy.h"
#include "ops/factories.h"
#include "ops/host_alias.h"
#include "ops/op_counter.h"
#include "ops/shape_probe.h"
#include "ops/task.h"
#include "torch_backend/current.h"
#include "torch_backend/errors.h"

namespace mojo::ops {

namespace {

bool is_served(at::ScalarType dtype) {
  switch (dtype) {
    case at::kByte:
    case at::kChar:
    case at::kShort:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble: return true;
    default: return false;
  }
}

void size_to(at::Tensor& out, std::int64_t size) {
  if (out.numel() == size) return;
  if (out.numel() > 0) {
    TORCH_WARN("The number of elements in the out tensor of shape ", out.sizes(), " is ", out.numel(),
               " which does not match the computed number of elements ", size,
               ". Note that this may occur as a result of rounding error. The out tensor will be resized to a tensor "
               "of shape (",
               size, ",).");
  }
  out.resize_({size});
}

constinit OpCounter arange_counter{"aten::arange.start_out"};

at::Tensor& arange_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  if (!is_served(out.scalar_type())) {  // CPU says what is wrong with the dtype
    at::Tensor result = at::detail::empty_cpu({0}, out.scalar_type());
    at::arange_out(result, start, end, step);
    size_to(out, result.numel());
    copy_into(out, result, /*non_blocking=*/false, arange_counter);
    return out;
  }
  // Before torch 2.13 core divides by it.
  TORCH_CHECK_VALUE(out.scalar_type() != at::kLong || step.to<std::int64_t>() != 0 || step.to<double>() == 0,
                    "step must be nonzero");
  size_to(out, out.scalar_type() == at::kLong ? at::native::compute_arange_size<std::int64_t>(start, end, step)
                                              : at::native::compute_arange_size<double>(start, end, step));
  if (out.numel() == 0 || shape_probe()) return out;
  refuse_while_probing();
  torch_backend::translated([&] {
    TensorDescriptor target(out);
    const Access access = target.access(true);
    enqueue_cpu_task(torch_backend::current_stream(out.device().index()), "aten::arange",
                     [target = std::move(target), start, end, step] {
                       at::Tensor result = as_cpu(target);
                       at::arange_out(result, start, end, step);
                     },
                     {&access, 1});
  });
  arange_counter.queued();
  return out;
}

}  // namespace

void register_ranges(torch::Library& library) { library.impl("arange.start_out", TORCH_FN(arange_out)); }

}  // namespace mojo::ops
