#include "ops/shape_rules.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/TypeProperties.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <utility>

#include "ops/shape_rule_forms.h"

namespace mojo::ops {

namespace {

// The last argument, an output, has those sizes.
bool sized_output(const Call& call, Shapes& shapes, at::IntArrayRef sizes) {
  const std::size_t out = call.arguments.size() - 1;
  if (std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size < 0; })) return false;
  if (tensor_of(call, out).sizes() == sizes) return true;
  shapes.resizes.push_back(contiguous(sizes, tensor_of(call, out).scalar_type()));
  shapes.resizes.back().argument = static_cast<int>(out);
  return true;
}

// --- pointwise ---

bool same_dtype(const Call& call, Shapes& shapes) {
  shapes.fresh.push_back(like(tensor_of(call, 0)));
  return true;
}

bool same_floating_dtype(const Call& call, Shapes& shapes) {
  return is_floating(tensor_of(call, 0)) && same_dtype(call, shapes);
}

// Not tagged as pointwise, and CPU's kernel is another one than the composition for all devices.
bool mish_backward(const Call& call, Shapes& shapes) {
  const at::Tensor &grad = tensor_of(call, 0), &self = tensor_of(call, 1);
  if (!is_floating(self) || !are_alike(grad, self) || grad.strides() != self.strides() ||
      !self.is_non_overlapping_and_dense())
    return false;
  return same_dtype(call, shapes);
}

bool truth(const Call& call, Shapes& shapes) {
  shapes.fresh.push_back(like(tensor_of(call, 0)));
  shapes.fresh.back().dtype = at::kBool;
  return true;
}

bool can_broadcast(at::IntArrayRef a, at::IntArrayRef b) {
  for (std::size_t i = 1; i <= std::min(a.size(), b.size()); ++i)
    if (a[a.size() - i] != b[b.size() - i] && a[a.size() - i] != 1 && b[b.size() - i] != 1) return false;
  return true;
}

at::ScalarType common_dtype(const at::Tensor& a, const at::Tensor& b) {
  return at::native::result_type(at::native::update_result_type_state(b, at::native::update_result_type_state(a, {})));
}

bool promoted(const Call& call, Shapes& shapes) {
  const at::Tensor &a = tensor_of(call, 0), &b = tensor_of(call, 1);
  if (!a.defined() || !b.defined() || !can_broadcast(a.sizes(), b.sizes())) return false;
  shapes.fresh.push_back(contiguous(at::infer_size(a.sizes(), b.sizes()), common_dtype(a, b)));
  return true;
}

bool promoted_output(const Call& call, Shapes& shapes) {
  const at::Tensor &a = tensor_of(call, 0), &b = tensor_of(call, 1);
  return can_broadcast(a.sizes(), b.sizes()) && sized_output(call, shapes, at::infer_size(a.sizes(), b.sizes()));
}

// In place, and the engine has seen that the shape is right.
bool in_place(const Call&, Shapes&) { return true; }

bool where(const Call& call, Shapes& shapes) {
  const at::Tensor &condition = tensor_of(call, 0), &a = tensor_of(call, 1), &b = tensor_of(call, 2);
  if (condition.scalar_type() != at::kBool || !can_broadcast(a.sizes(), b.sizes())) return false;
  const auto sizes = at::infer_size(a.sizes(), b.sizes());
  if (!can_broadcast(condition.sizes(), sizes)) return false;
  shapes.fresh.push_back(contiguous(at::infer_size(condition.sizes(), sizes), common_dtype(a, b)));
  return true;
}

// --- indexing and order ---

bool index_select(const Call& call, Shapes& shapes) {
  const at::Tensor &self = tensor_of(call, 0), &index = tensor_of(call, 2);
  const std::int64_t dim = call.arguments[1].toInt(), wrapped = dim < 0 ? dim + self.dim() : dim;
  if (self.dim() == 0 || wrapped < 0 || wrapped >= self.dim() || index.dim() > 1 || !is_index(index)) return false;
  c10::SmallVector<std::int64_t, 6> sizes(self.sizes());
  sizes[static_cast<std::size_t>(wrapped)] = index.numel();
  shapes.fresh.push_back(contiguous(sizes, self.scalar_type()));
  return true;
}

bool flip(const Call& call, Shapes& shapes) {
  const at::Tensor& self = tensor_of(call, 0);
  c10::SmallVector<bool, 8> dims;
  if (!wrapped_dims(call.arguments[1], self.dim(), dims)) return false;
  shapes.fresh.push_back(like(self));
  return true;
}

// Meta has the transpose of what CPU gives.
bool nonzero_static(const Call& call, Shapes& shapes) {
  const std::int64_t dim = tensor_of(call, 0).dim(), size = call.arguments[1].toInt();
  if (size < 0) return false;
  shapes.fresh.push_back(contiguous({size, dim}, at::kLong));
  return true;
}

// The caller may say how long the result will be, so that nobody has to add the repeats up.
bool repeat_interleave(const Call& call, Shapes& shapes) {
  const at::Tensor& repeats = tensor_of(call, 0);
  if (!call.arguments[1].isInt() || call.arguments[1].toInt() < 0 || repeats.dim() != 1 || repeats.numel() == 0 ||
      !is_index(repeats))
    return false;
  shapes.fresh.push_back(contiguous({call.arguments[1].toInt()}, repeats.scalar_type()));
  return true;
}

// --- reductions ---

bool to_scalar(const Call& call, Shapes& shapes) {
  const at::Tensor& self = tensor_of(call, 0);
  if (self.numel() == 0) return false;
  shapes.fresh.push_back(contiguous({}, self.scalar_type()));
  return true;
}

bool dot(const Call& call, Shapes& shapes) {
  const at::Tensor &a = tensor_of(call, 0), &b = tensor_of(call, 1);
  if (a.dim() != 1 || !are_alike(a, b)) return false;
  shapes.fresh.push_back(contiguous({}, a.scalar_type()));
  return true;
}

// var, std (one result), var_mean, std_mean (two): self, dim, correction, keepdim.
bool deviation(const Call& call, Shapes& shapes) {
  const at::Tensor& self = tensor_of(call, 0);
  if (!is_floating(self)) return false;
  c10::SmallVector<bool, 8> reduced(static_cast<std::size_t>(self.dim()), true);
  if (call.arguments[1].isList() && !call.arguments[1].toListRef().empty() &&
      !wrapped_dims(call.arguments[1], self.dim(), reduced))
    return false;
  const bool keep = call.arguments[3].toBool();
  c10::SmallVector<std::int64_t, 6> sizes;
  for (std::size_t dim = 0; dim < reduced.size(); ++dim) {
    if (!reduced[dim]) sizes.push_back(self.sizes()[dim]);
    if (reduced[dim] && keep) sizes.push_back(1);
  }
  for (std::size_t i = 0; i < call.plan.returns.size(); ++i)
    shapes.fresh.push_back(contiguous(sizes, self.scalar_type()));
  return true;
}

bool eigenvectors(const Call& call, Shapes& shapes) {
  const at::Tensor& self = tensor_of(call, 0);
  const at::ScalarType dtype = self.scalar_type();
  if (self.dim() < 2 || self.size(-1) != self.size(-2) || self.size(-1) == 0 ||
      (dtype != at::kFloat && dtype != at::kDouble && !self.is_complex()))
    return false;
  const at::ScalarType result = c10::toComplexType(dtype);
  shapes.fresh.push_back(contiguous(self.sizes().slice(0, self.sizes().size() - 1), result));
  shapes.fresh.push_back(column_major(self.sizes(), result));
  return true;
}

// --- factories, by their outputs ---

bool eye(const Call& call, Shapes& shapes) {
  const std::int64_t n = call.arguments[0].toInt();
  return sized_output(call, shapes, {n, call.arguments.size() == 3 ? call.arguments[1].toInt() : n});
}

// _logcumsumexp: its kernel is for numbers with a logarithm, and the dimension has been checked before.
bool scans(const at::Tensor& self) {
  return is_floating(self) || self.scalar_type() == at::kComplexFloat || self.scalar_type() == at::kComplexDouble;
}
bool scanned(const Call& call, Shapes& shapes) {
  if (!scans(tensor_of(call, 0))) return false;
  shapes.fresh.push_back(contiguous_like(tensor_of(call, 0)));
  return true;
}
bool scanned_output(const Call& call, Shapes& shapes) {
  const at::Tensor &self = tensor_of(call, 0), &out = tensor_of(call, call.arguments.size() - 1);
  return scans(self) && out.scalar_type() == self.scalar_type() && sized_output(call, shapes, self.sizes());
}

bool steps(const Call& call, Shapes& shapes) { return sized_output(call, shapes, {call.arguments[2].toInt()}); }

bool permutation(const Call& call, Shapes& shapes) {
  if (!is_index(tensor_of(call, call.arguments.size() - 1))) return false;  // what others can count to, core checks
  return sized_output(call, shapes, {call.arguments[0].toInt()});
}

// window_length, periodic, beta (the latter two not in every overload), dtype, layout, device, pin_memory
bool kaiser_window(const Call& call, Shapes& shapes) {
  const std::int64_t length = call.arguments[0].toInt();
  const c10::IValue &dtype = call.arguments[call.arguments.size() - 4],
                    &layout = call.arguments[call.arguments.size() - 3];
  const at::ScalarType result = dtype.isNone() ? c10::get_default_dtype_as_scalartype() : dtype.toScalarType();
  if (length < 0 || !is_floating(result) || (!layout.isNone() && layout.toLayout() != at::kStrided)) return false;
  shapes.fresh.push_back(contiguous({length}, result));
  return true;
}

constexpr std::array<NamedShapeRule, 32> rules = {{
    {"relu", same_dtype},
    {"hardswish", same_floating_dtype},
    {"hardtanh", same_floating_dtype},
    {"mish_backward", mish_backward},
    {"isnan", truth},
    {"floor_divide", promoted},
    {"floor_divide_.Tensor", in_place},
    {"floor_divide.out", promoted_output},
    {"where.self", where},
    {"index_select", index_select},
    {"flip", flip},
    {"_logcumsumexp", scanned},
    {"_logcumsumexp.out", scanned_output},
    {"nonzero_static", nonzero_static},
    {"repeat_interleave.Tensor", repeat_interleave},
    {"max", to_scalar},
    {"min", to_scalar},
    {"dot", dot},
    {"var.correction", deviation},
    {"std.correction", deviation},
    {"var_mean.correction", deviation},
    {"std_mean.correction", deviation},
    {"linalg_eig", eigenvectors},
    {"eye.out", eye},
    {"eye.m_out", eye},
    {"kaiser_window", kaiser_window},
    {"kaiser_window.periodic", kaiser_window},
    {"kaiser_window.beta", kaiser_window},
    {"linspace.out", steps},
    {"logspace.out", steps},
    {"randperm.out", permutation},
    {"randperm.generator_out", permutation},
}};

}  // namespace

ShapeRule shape_rule_of(std::string_view name) {
  for (const std::span<const NamedShapeRule> table : {std::span<const NamedShapeRule>(rules), network_shape_rules()})
    for (const auto& [known, rule] : table)
      if (known == name) return rule;
  return nullptr;
}

}  // namespace mojo::ops
