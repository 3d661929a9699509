// Norms, attention, embeddings, pooling and losses. The forms are those of CPU's kernels.
#include <c10/util/SmallVector.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "ops/shape_rule_forms.h"
#include "ops/shape_rules.h"

namespace mojo::ops {

namespace {

using Sizes = c10::SmallVector<std::int64_t, 6>;

bool masked(const c10::IValue& mask, std::size_t i) { return mask.toListRef()[i].toBool(); }

void push_if(Shapes& shapes, bool wanted, ResultShape shape) {
  shapes.fresh.push_back(wanted ? std::move(shape) : ResultShape());
}

// A norm computes in float32 where its parameters are that and its input is of 16 bits. False: a mixture that it refuses.
bool parameter_dtype(const at::Tensor& input, std::initializer_list<const at::Tensor*> parameters,
                     at::ScalarType& dtype) {
  if (!is_floating(input)) return false;
  dtype = input.scalar_type();
  bool first = true;
  for (const at::Tensor* parameter : parameters) {
    if (!parameter->defined()) continue;
    if (!std::exchange(first, false) && parameter->scalar_type() != dtype) return false;
    dtype = parameter->scalar_type();
  }
  return dtype == input.scalar_type() || (dtype == at::kFloat && c10::isReducedFloatingType(input.scalar_type()));
}

bool is_vector_of(const at::Tensor& tensor, std::int64_t size) {
  return !tensor.defined() || (tensor.dim() == 1 && tensor.size(0) == size);
}

// --- layer norm ---

// The number of leading dimensions, or -1 if the shapes do not fit.
std::int64_t leading_dims(const at::Tensor& input, const c10::IValue& normalized, const at::Tensor& weight,
                          const at::Tensor& bias) {
  const auto shape = normalized.toIntVector();
  const auto count = static_cast<std::int64_t>(shape.size()), axis = input.dim() - count;
  if (count == 0 || axis < 0) return -1;
  if (input.sizes().slice(static_cast<std::size_t>(axis)) != at::IntArrayRef(shape)) return -1;
  for (const at::Tensor* parameter : {&weight, &bias})
    if (parameter->defined() && parameter->sizes() != at::IntArrayRef(shape)) return -1;
  return axis;
}

// input, normalized_shape, weight, bias, eps
bool layer_norm(const Call& call, Shapes& shapes) {
  const at::Tensor &input = tensor_of(call, 0), &weight = tensor_of(call, 2), &bias = tensor_of(call, 3);
  const std::int64_t axis = leading_dims(input, call.arguments[1], weight, bias);
  at::ScalarType dtype{};
  if (axis < 0 || !parameter_dtype(input, {&weight, &bias}, dtype)) return false;
  Sizes statistics(input.sizes());
  std::fill(statistics.begin() + axis, statistics.end(), 1);
  shapes.fresh.push_back(contiguous_like(input));
  shapes.fresh.push_back(contiguous(statistics, dtype));
  shapes.fresh.push_back(contiguous(statistics, dtype));
  return true;
}

// grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask
bool layer_norm_backward(const Call& call, Shapes& shapes) {
  const at::Tensor &grad = tensor_of(call, 0), &input = tensor_of(call, 1), &weight = tensor_of(call, 5),
                   &bias = tensor_of(call, 6);
  const c10::IValue& mask = call.arguments[7];
  at::ScalarType dtype{};
  if (leading_dims(input, call.arguments[2], weight, bias) < 0 || !are_alike(grad, input) ||
      !parameter_dtype(input, {&weight, &bias}, dtype) || (masked(mask, 1) && !weight.defined()) ||
      (masked(mask, 2) && !bias.defined()))
    return false;
  push_if(shapes, masked(mask, 0), contiguous_like(input));
  push_if(shapes, masked(mask, 1), weight.defined() ? contiguous_like(weight) : ResultShape());
  push_if(shapes, masked(mask, 2), bias.defined() ? contiguous_like(bias) : ResultShape());
  return true;
}

// --- group norm ---

// input, weight, bias, N, C, HxW, group, eps
bool group_norm(const Call& call, Shapes& shapes) {
  const at::Tensor &input = tensor_of(call, 0), &weight = tensor_of(call, 1), &bias = tensor_of(call, 2);
  const std::int64_t n = call.arguments[3].toInt(), channels = call.arguments[4].toInt(),
                     pixels = call.arguments[5].toInt(), groups = call.arguments[6].toInt();
  at::ScalarType dtype{};
  if (groups <= 0 || channels % groups != 0 || input.numel() != n * channels * pixels ||
      !is_vector_of(weight, channels) || !is_vector_of(bias, channels) ||
      !parameter_dtype(input, {&weight, &bias}, dtype))
    return false;
  shapes.fresh.push_back(in_format_of(input));
  shapes.fresh.push_back(contiguous({n, groups}, dtype));
  shapes.fresh.push_back(contiguous({n, groups}, dtype));
  return true;
}

// grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask
bool group_norm_backward(const Call& call, Shapes& shapes) {
  const at::Tensor &grad = tensor_of(call, 0), &input = tensor_of(call, 1), &weight = tensor_of(call, 4);
  const std::int64_t channels = call.arguments[6].toInt();
  const c10::IValue& mask = call.arguments[9];
  at::ScalarType dtype{};
  if (input.numel() == 0 || !are_alike(grad, input) ||
      !parameter_dtype(input, {&tensor_of(call, 2), &tensor_of(call, 3)}, dtype))
    return false;
  const at::ScalarType of_weight = weight.defined() ? weight.scalar_type() : input.scalar_type();
  push_if(shapes, masked(mask, 0), in_format_of(input));
  push_if(shapes, masked(mask, 1), contiguous({channels}, of_weight));
  push_if(shapes, masked(mask, 2), contiguous({channels}, of_weight));
  return true;
}

// --- batch norm ---

bool batch_norm_forward(const Call& call, Shapes& shapes, std::initializer_list<const at::Tensor*> parameters,
                        bool training) {
  const at::Tensor& input = tensor_of(call, 0);
  at::ScalarType dtype{};
  if (input.dim() < 2 || input.numel() == 0 || !parameter_dtype(input, parameters, dtype)) return false;
  const std::int64_t channels = input.size(1);
  for (const at::Tensor* parameter : parameters)
    if (!is_vector_of(*parameter, channels)) return false;
  shapes.fresh.push_back(in_format_of(input));
  // Outside training there is nothing to save for backward.
  const Sizes saved{training ? channels : 0};
  shapes.fresh.push_back(contiguous(saved, dtype));
  shapes.fresh.push_back(contiguous(saved, dtype));
  return true;
}

// Parameters and statistics are the arguments from 1 to 4.
bool batch_norm_with_statistics(const Call& call, Shapes& shapes, bool training) {
  return batch_norm_forward(
      call, shapes, {&tensor_of(call, 1), &tensor_of(call, 2), &tensor_of(call, 3), &tensor_of(call, 4)}, training);
}

// input, weight, bias, running_mean, running_var, training, momentum, eps
bool batch_norm(const Call& call, Shapes& shapes) {
  const bool training = call.arguments[5].toBool();
  if (!training && (!tensor_of(call, 3).defined() || !tensor_of(call, 4).defined())) return false;
  return batch_norm_with_statistics(call, shapes, training);
}

// input, weight, bias, training, momentum, eps
bool batch_norm_no_statistics(const Call& call, Shapes& shapes) {
  return call.arguments[3].toBool() &&
         batch_norm_forward(call, shapes, {&tensor_of(call, 1), &tensor_of(call, 2)}, true);
}

// input, weight, bias, running_mean, running_var, momentum, eps; a reserve, which CPU does not need, comes last
bool batch_norm_with_update(const Call& call, Shapes& shapes) {
  if (!batch_norm_with_statistics(call, shapes, true)) return false;
  shapes.fresh.push_back(contiguous({0}, at::kByte));
  return true;
}

// grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask
bool batch_norm_backward(const Call& call, Shapes& shapes) {
  const at::Tensor &grad = tensor_of(call, 0), &input = tensor_of(call, 1);
  const c10::IValue& mask = call.arguments[9];
  at::ScalarType dtype{};
  if (input.dim() < 2 || input.numel() == 0 || !are_alike(grad, input) ||
      !parameter_dtype(
          input,
          {&tensor_of(call, 2), &tensor_of(call, 3), &tensor_of(call, 4), &tensor_of(call, 5), &tensor_of(call, 6)},
          dtype))
    return false;
  push_if(shapes, masked(mask, 0), in_format_of(input));
  push_if(shapes, masked(mask, 1), contiguous({input.size(1)}, dtype));
  push_if(shapes, masked(mask, 2), contiguous({input.size(1)}, dtype));
  return true;
}

// --- attention ---

bool are_heads(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  return is_floating(query) && query.dim() == 4 && key.dim() == 4 && value.dim() == 4 &&
         key.scalar_type() == query.scalar_type() && value.scalar_type() == query.scalar_type() &&
         key.size(0) == query.size(0) && value.size(0) == query.size(0) && key.size(3) == query.size(3) &&
         value.size(3) == query.size(3) && key.size(2) == value.size(2) && query.numel() != 0 && key.numel() != 0;
}

// query, key, value, dropout_p, is_causal, attn_mask, scale
bool attention(const Call& call, Shapes& shapes) {
  const at::Tensor& query = tensor_of(call, 0);
  if (!are_heads(query, tensor_of(call, 1), tensor_of(call, 2))) return false;
  const at::ScalarType dtype = query.scalar_type();
  shapes.fresh.push_back(like(query));
  shapes.fresh.push_back(
      contiguous_transposed(query.sizes().slice(0, 3), c10::isReducedFloatingType(dtype) ? at::kFloat : dtype));
  return true;
}

// grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale
bool attention_backward(const Call& call, Shapes& shapes) {
  const at::Tensor& query = tensor_of(call, 1);
  if (!are_heads(query, tensor_of(call, 2), tensor_of(call, 3)) || tensor_of(call, 0).sizes() != query.sizes())
    return false;
  for (const std::size_t i : {1u, 2u, 3u})
    shapes.fresh.push_back(contiguous_transposed(tensor_of(call, i).sizes(), query.scalar_type()));
  return true;
}

// --- the rest ---

// grad_output, indices, num_weights, padding_idx, scale_grad_by_freq
bool embedding_backward(const Call& call, Shapes& shapes) {
  const at::Tensor &grad = tensor_of(call, 0), &indices = tensor_of(call, 1);
  if (!is_floating(grad) || !is_index(indices) || grad.dim() != indices.dim() + 1 ||
      grad.sizes().slice(0, static_cast<std::size_t>(indices.dim())) != indices.sizes())
    return false;
  shapes.fresh.push_back(contiguous({call.arguments[2].toInt(), grad.size(-1)}, grad.scalar_type()));
  return true;
}

// self, output_size
bool adaptive_average_pool(const Call& call, Shapes& shapes) {
  const at::Tensor& self = tensor_of(call, 0);
  const auto output = call.arguments[1].toIntVector();
  if (!is_floating(self) || self.dim() != 4 || output.size() != 2 || self.numel() == 0 || output[0] <= 0 ||
      output[1] <= 0)
    return false;
  shapes.fresh.push_back(
      in_format({self.size(0), self.size(1), output[0], output[1]}, self.scalar_type(), self.suggest_memory_format()));
  return true;
}

// grad_output, self
bool adaptive_average_pool_backward(const Call& call, Shapes& shapes) {
  const at::Tensor &grad = tensor_of(call, 0), &self = tensor_of(call, 1);
  if (!is_floating(self) || self.dim() != 4 || grad.dim() != 4 || self.numel() == 0 || grad.numel() == 0 ||
      grad.scalar_type() != self.scalar_type() || grad.size(0) != self.size(0) || grad.size(1) != self.size(1))
    return false;
  shapes.fresh.push_back(in_format_of(self));
  return true;
}

// self, target, reduction: CPU's loss of one sample has no dimension.
bool multilabel_margin(const Call& call, Shapes& shapes) {
  const at::Tensor &self = tensor_of(call, 0), &target = tensor_of(call, 1);
  if (!is_floating(self) || self.dim() > 1 || target.sizes() != self.sizes() || target.scalar_type() != at::kLong ||
      self.numel() == 0)
    return false;
  shapes.fresh.push_back(contiguous({}, self.scalar_type()));
  shapes.fresh.push_back(contiguous(target.sizes(), self.scalar_type()));
  return true;
}

bool is_loss_of(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& target) {
  return is_floating(self) && are_alike(target, self) && grad.scalar_type() == self.scalar_type() &&
         (grad.dim() == 0 || grad.sizes() == self.sizes());
}

// grad_output, self, target, reduction
bool mean_squares_backward(const Call& call, Shapes& shapes) {
  const at::Tensor& self = tensor_of(call, 1);
  if (!is_loss_of(tensor_of(call, 0), self, tensor_of(call, 2))) return false;
  shapes.fresh.push_back(contiguous_like(self));
  return true;
}

// grad_output, self, target, weight, reduction
bool cross_entropy_backward(const Call& call, Shapes& shapes) {
  const at::Tensor& self = tensor_of(call, 1);
  if (!is_loss_of(tensor_of(call, 0), self, tensor_of(call, 2)) || tensor_of(call, 3).defined()) return false;
  shapes.fresh.push_back(like(self));
  return true;
}

constexpr std::array<NamedShapeRule, 18> rules = {{
    {"native_layer_norm", layer_norm},
    {"native_layer_norm_backward", layer_norm_backward},
    {"native_group_norm", group_norm},
    {"native_group_norm_backward", group_norm_backward},
    {"native_batch_norm", batch_norm},
    {"_native_batch_norm_legit", batch_norm},
    {"_native_batch_norm_legit.no_stats", batch_norm_no_statistics},
    {"_batch_norm_with_update", batch_norm_with_update},
    {"batch_norm_backward", batch_norm_backward},
    {"native_batch_norm_backward", batch_norm_backward},
    {"_scaled_dot_product_flash_attention_for_cpu", attention},
    {"_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
    {"embedding_dense_backward", embedding_backward},
    {"_adaptive_avg_pool2d", adaptive_average_pool},
    {"_adaptive_avg_pool2d_backward", adaptive_average_pool_backward},
    {"multilabel_margin_loss_forward", multilabel_margin},
    {"mse_loss_backward", mean_squares_backward},
    {"binary_cross_entropy_backward", cross_entropy_backward},
}};

}  // namespace

std::span<const NamedShapeRule> network_shape_rules() { return rules; }

}  // namespace mojo::ops
