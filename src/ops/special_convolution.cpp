// Convolution. Core checks the shapes before it comes here; CPU's own choice of a kernel is made on the worker.
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/factories.h"
#include "ops/host_alias.h"
#include "ops/op_counter.h"
#include "ops/same_device.h"
#include "ops/special.h"
#include "torch_backend/current.h"

namespace mojo::ops {

namespace {

using Numbers = c10::SmallVector<std::int64_t, 3>;

struct Parameters {
  Numbers stride, padding, dilation, output_padding;
  std::int64_t groups;
  bool transposed;
};

// Raises what CPU says of operands of several dtypes; what it says depends on which kernel it would choose.
void check_dtypes(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) {
  if (input.scalar_type() == weight.scalar_type() && (!bias.defined() || bias.scalar_type() == input.scalar_type()))
    return;
  if (input.dim() < 3) return;
  const c10::SmallVector<std::int64_t, 5> ones(static_cast<std::size_t>(input.dim()), 1);
  const c10::SmallVector<std::int64_t, 3> steps(ones.size() - 2, 1), none(ones.size() - 2, 0);
  const auto one = [](at::IntArrayRef sizes, at::ScalarType dtype) { return at::detail::empty_cpu(sizes, dtype); };
  const KernelState state(at::get_num_threads());
  at::convolution(one(ones, input.scalar_type()), one(ones, weight.scalar_type()),
                  bias.defined() ? std::optional(one({1}, bias.scalar_type())) : std::nullopt, steps, none, steps,
                  /*transposed=*/false, none, /*groups=*/1);
}

// CPU's results are in channels-last where one of the operands is.
at::MemoryFormat format_of(const at::Tensor& input, const at::Tensor& weight) {
  for (const at::Tensor* tensor : {&input, &weight}) {
    const at::MemoryFormat format = tensor->suggest_memory_format();
    if (format == at::MemoryFormat::ChannelsLast || format == at::MemoryFormat::ChannelsLast3d) return format;
  }
  return at::MemoryFormat::Contiguous;
}

at::Tensor empty_in(at::IntArrayRef sizes, const at::Tensor& like, at::MemoryFormat format) {
  at::Tensor result = empty_contiguous(sizes, like.scalar_type(), like.device().index());
  if (format != at::MemoryFormat::Contiguous) result.unsafeGetTensorImpl()->empty_tensor_restride(format);
  return result;
}

Access whole(const at::Tensor& tensor, bool written) { return TensorDescriptor(tensor, written).access(written); }

constinit OpCounter convolution_counter{"aten::convolution_overrideable"};
constinit OpCounter convolution_backward_counter{"aten::convolution_backward_overrideable"};

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                       at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                       at::IntArrayRef output_padding, std::int64_t groups) {
  const at::Tensor bias_tensor = bias.value_or(at::Tensor());
  check_same_device({&input, &weight, &bias_tensor});
  check_dtypes(input, weight, bias_tensor);
  const std::vector<std::int64_t> sizes =
      transposed ? at::native::conv_input_size(input.sizes(), weight.sizes(), padding, output_padding, stride, dilation,
                                               groups)
                 : at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  at::Tensor output = empty_in(sizes, input, format_of(input, weight));
  c10::SmallVector<Access, 4> accesses{whole(input, false), whole(weight, false), whole(output, true)};
  if (bias_tensor.defined()) accesses.push_back(whole(bias_tensor, false));
  enqueue_cpu_task(torch_backend::current_stream(input.device().index()), "aten::convolution",
                   [in = TensorDescriptor(input, false), w = TensorDescriptor(weight, false),
                    b = bias_tensor.defined() ? TensorDescriptor(bias_tensor, false) : TensorDescriptor(),
                    out = TensorDescriptor(output),
                    p = Parameters{Numbers(stride), Numbers(padding), Numbers(dilation), Numbers(output_padding),
                                   groups, transposed}] {
                     const at::Tensor cpu_bias = as_cpu(b);
                     as_cpu(out).copy_(at::convolution(
                         as_cpu(in), as_cpu(w), cpu_bias.defined() ? std::optional(cpu_bias) : std::nullopt, p.stride,
                         p.padding, p.dilation, p.transposed, p.output_padding, p.groups));
                   },
                   {accesses.data(), accesses.size()});
  convolution_counter.queued();
  return output;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(const at::Tensor& grad_output,
                                                                    const at::Tensor& input, const at::Tensor& weight,
                                                                    at::IntArrayRef stride, at::IntArrayRef padding,
                                                                    at::IntArrayRef dilation, bool transposed,
                                                                    at::IntArrayRef output_padding, std::int64_t groups,
                                                                    std::array<bool, 3> mask) {
  check_same_device({&input, &weight, &grad_output});
  const at::MemoryFormat format = format_of(input, weight);
  const std::int64_t channels = grad_output.size(1);
  at::Tensor grad_input, grad_weight, grad_bias;
  if (mask[0]) grad_input = empty_in(input.sizes(), input, format);
  if (mask[1]) grad_weight = empty_in(weight.sizes(), weight, format);
  if (mask[2]) grad_bias = empty_in({channels}, grad_output, at::MemoryFormat::Contiguous);
  c10::SmallVector<Access, 6> accesses{whole(grad_output, false), whole(input, false), whole(weight, false)};
  std::array<TensorDescriptor, 3> results;
  std::size_t i = 0;
  for (const at::Tensor* result : {&grad_input, &grad_weight, &grad_bias}) {
    if (result->defined()) {
      results[i] = TensorDescriptor(*result);
      accesses.push_back(whole(*result, true));
    }
    ++i;
  }
  enqueue_cpu_task(torch_backend::current_stream(input.device().index()), "aten::convolution_backward",
                   [grad = TensorDescriptor(grad_output, false), in = TensorDescriptor(input, false),
                    w = TensorDescriptor(weight, false), results, mask, channels,
                    p = Parameters{Numbers(stride), Numbers(padding), Numbers(dilation), Numbers(output_padding),
                                   groups, transposed}] {
                     const std::array<std::int64_t, 1> bias_sizes = {channels};
                     const auto [to_input, to_weight, to_bias] = at::convolution_backward(
                         as_cpu(grad), as_cpu(in), as_cpu(w),
                         mask[2] ? at::OptionalIntArrayRef(bias_sizes) : std::nullopt, p.stride, p.padding, p.dilation,
                         p.transposed, p.output_padding, p.groups, mask);
                     if (mask[0]) as_cpu(results[0]).copy_(to_input);
                     if (mask[1]) as_cpu(results[1]).copy_(to_weight);
                     if (mask[2]) as_cpu(results[2]).copy_(to_bias);
                   },
                   {accesses.data(), accesses.size()});
  convolution_backward_counter.queued();
  return {grad_input, grad_weight, grad_bias};
}

}  // namespace

void register_convolution(torch::Library& library) {
  library.impl("convolution_overrideable", TORCH_FN(convolution));
  library.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward));
}

}  // namespace mojo::ops
