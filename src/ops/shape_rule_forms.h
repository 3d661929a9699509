// What it is: how shape rules read a call's arguments and write down a result's form.
// Ordering: none. Threads: any. Errors: none.
#pragma once

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/strides.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "ops/engine_call.h"
#include "ops/engine_shapes.h"

namespace mojo::ops {

// The i-th argument; undefined where it is None.
inline const at::Tensor& tensor_of(const Call& call, std::size_t i) {
  static const at::Tensor none;
  return call.arguments[i].isTensor() ? call.arguments[i].toTensor() : none;
}

inline ResultShape strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
  ResultShape result;
  result.defined = true;
  result.dtype = dtype;
  result.shape.set_sizes(sizes);
  result.shape.set_strides(strides);
  return result;
}

inline ResultShape contiguous(at::IntArrayRef sizes, at::ScalarType dtype) {
  return strided(sizes, c10::contiguous_strides(sizes), dtype);
}

inline ResultShape in_format(at::IntArrayRef sizes, at::ScalarType dtype, at::MemoryFormat format) {
  if (format == at::MemoryFormat::ChannelsLast && sizes.size() == 4)
    return strided(sizes, c10::get_channels_last_strides_2d(sizes), dtype);
  if (format == at::MemoryFormat::ChannelsLast3d && sizes.size() == 5)
    return strided(sizes, c10::get_channels_last_strides_3d(sizes), dtype);
  return contiguous(sizes, dtype);
}

// As `empty_like` makes it.
inline ResultShape like(const at::Tensor& tensor) {
  if (tensor.is_non_overlapping_and_dense()) return strided(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  return strided(tensor.sizes(), at::infer_dense_strides(tensor.sizes(), tensor.strides()), tensor.scalar_type());
}

inline ResultShape contiguous_like(const at::Tensor& tensor) {
  return contiguous(tensor.sizes(), tensor.scalar_type());
}

// Contiguous or channels-last, as the tensor itself is.
inline ResultShape in_format_of(const at::Tensor& tensor) {
  return in_format(tensor.sizes(), tensor.scalar_type(), tensor.suggest_memory_format());
}

// Of three or four dimensions; contiguous when its second and third are swapped.
inline ResultShape contiguous_transposed(at::IntArrayRef sizes, at::ScalarType dtype) {
  std::array<std::int64_t, 4> strides{};
  std::int64_t step = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    const std::size_t dim = i == 1 ? 2 : i == 2 ? 1 : i;
    strides[dim] = step;
    step *= sizes[dim];
  }
  return strided(sizes, {strides.data(), sizes.size()}, dtype);
}

// Matrices whose columns lie one behind the other, as LAPACK wants them.
inline ResultShape column_major(at::IntArrayRef sizes, at::ScalarType dtype) {
  ResultShape result = contiguous(sizes, dtype);
  const std::size_t dim = sizes.size();
  result.shape.stride_at(dim - 2) = 1;
  result.shape.stride_at(dim - 1) = std::max<std::int64_t>(sizes[dim - 2], 1);
  return result;
}

// The floating-point dtypes that CPU's kernels compute in.
inline bool is_floating(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf || dtype == at::kBFloat16;
}
inline bool is_floating(const at::Tensor& tensor) { return tensor.defined() && is_floating(tensor.scalar_type()); }

// Whether the dtype is one that CPU's kernels take for indices and counts.
inline bool is_index(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt;
}

// Whether sizes and dtype are the same.
inline bool are_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

// The dimensions from an argument of type int[], not negative; false where one is out of range or comes twice.
inline bool wrapped_dims(const c10::IValue& value, std::int64_t dim, c10::SmallVector<bool, 8>& chosen) {
  chosen.assign(static_cast<std::size_t>(dim), false);
  for (const c10::IValue& element : value.toListRef()) {
    std::int64_t at = element.toInt();
    if (at < 0) at += dim;
    if (at < 0 || at >= dim || chosen[static_cast<std::size_t>(at)]) return false;
    chosen[static_cast<std::size_t>(at)] = true;
  }
  return true;
}

}  // namespace mojo::ops
