// Dropout: CPU's kernel draws from the process's default generator; the same with a generator of the call's own.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <c10/util/Exception.h>

#include <array>
#include <optional>
#include <tuple>

#include "ops/factories.h"
#include "ops/host_alias.h"
#include "ops/op_counter.h"
#include "ops/special.h"
#include "torch_backend/current.h"
#include "torch_backend/generator.h"

namespace mojo::ops {

namespace {

// Strides of `empty_like`.
at::Tensor empty_like(const at::Tensor& tensor, at::ScalarType dtype) {
  return at::empty_like(tensor, tensor.options().dtype(dtype));
}

constinit OpCounter native_dropout_counter{"aten::native_dropout"};

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  const c10::DeviceIndex device = input.device().index();
  if (train.value_or(true) && input.numel() != 0) {
    TORCH_CHECK(p >= 0 && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", 1 - p);
    TORCH_CHECK(c10::canCast(at::kFloat, input.scalar_type()),
                "result type Float can't be cast to the desired output type ", input.scalar_type());
  }
  at::Tensor output = empty_like(input, input.scalar_type()), mask = empty_like(input, at::kBool);
  if (input.numel() == 0) return {output, mask};
  const TensorDescriptor in(input, false), out(output), keep(mask);
  const std::array<Access, 3> accesses = {in.access(false), out.access(true), keep.access(true)};
  const bool training = train.value_or(true);
  const std::uint64_t seed = training ? torch_backend::reserve_call_seed(std::nullopt, device) : 0;
  enqueue_cpu_task(
      torch_backend::current_stream(device), "aten::native_dropout",
      [=] {
        at::Tensor values = as_cpu(in), kept = as_cpu(keep), result = as_cpu(out);
        if (!training) {
          kept.fill_(true);
          result.copy_(values);
          return;
        }
        const double keeps = 1 - p, scale = keeps == 0 ? 0 : 1 / keeps;
        kept.bernoulli_(keeps, at::make_generator<at::CPUGeneratorImpl>(seed));
        at::mul_out(result, values, kept);
        result.mul_(scale);
      },
      accesses);
  native_dropout_counter.queued();
  return {output, mask};
}

}  // namespace

void register_dropout(torch::Library& library) { library.impl("native_dropout", TORCH_FN(native_dropout)); }

}  // namespace mojo::ops
