#include "ops/factories.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/fill.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>

#include <optional>
#include <utility>

#include "ops/shape_probe.h"
#include "torch_backend/current.h"
#include "torch_backend/device_allocator.h"

namespace mojo::ops {

namespace {

// A tensor of `bytes` bytes that still has the sizes of a new TensorImpl, [0].
at::Tensor make_tensor(std::size_t bytes, at::ScalarType dtype, c10::DeviceIndex index) {
  // Not through c10::Allocator::allocate: that has no device argument, and to switch the current device costs.
  static c10::Allocator* const allocator = torch_backend::device_allocator();
  if (shape_probe()) [[unlikely]]
    bytes = 0;
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                       c10::SymInt(static_cast<std::int64_t>(bytes)),
                                                       torch_backend::allocate(bytes, index), allocator,
                                                       /*resizable=*/true);
  constexpr c10::DispatchKeySet keys(c10::DispatchKey::PrivateUse1);
  return at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, c10::scalarTypeToTypeMeta(dtype));
}

void warn_of_complex_half(at::ScalarType dtype) {
  if (C10_UNLIKELY(dtype == at::kComplexHalf)) {
    TORCH_WARN_ONCE("ComplexHalf support is experimental and many operators don't support it yet.");
  }
}

// What the two kernels check alike, for every factory of core ends in one of them.
c10::DeviceIndex check_options(std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!layout.has_value() || *layout == at::kStrided, "mojo backend: tensors of layout ",
                              layout.value_or(at::kStrided), " are not supported on the device, only torch.strided");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  return torch_backend::checked_device(device.has_value() ? device->index() : c10::DeviceIndex{-1});
}

at::Tensor fill_if_deterministic(at::Tensor tensor) {
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()))
    at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

at::Tensor empty_memory_format(at::IntArrayRef sizes, std::optional<at::ScalarType> dtype,
                               std::optional<at::Layout> layout, std::optional<at::Device> device,
                               std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  const c10::DeviceIndex index = check_options(layout, device, pin_memory);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  at::detail::check_size_nonnegative(sizes);
  warn_of_complex_half(type);
  at::Tensor result = empty_contiguous(sizes, type, index);
  if (memory_format.has_value() && *memory_format != at::MemoryFormat::Contiguous)
    result.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  return fill_if_deterministic(std::move(result));
}

at::Tensor empty_strided_kernel(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                                std::optional<at::Layout> layout, std::optional<at::Device> device,
                                std::optional<bool> pin_memory) {
  const c10::DeviceIndex index = check_options(layout, device, pin_memory);
  const at::ScalarType type = c10::dtype_or_default(dtype);
  at::detail::check_size_nonnegative(sizes);
  warn_of_complex_half(type);
  return fill_if_deterministic(empty_strided(sizes, strides, type, index));
}

}  // namespace

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, c10::DeviceIndex index) {
  const std::size_t bytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(dtype));
  at::Tensor result = make_tensor(bytes, dtype, index);
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return result;
}

at::Tensor empty_contiguous(at::IntArrayRef sizes, at::ScalarType dtype, c10::DeviceIndex index) {
  const std::size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(dtype));
  at::Tensor result = make_tensor(bytes, dtype, index);
  if (sizes.size() != 1 || sizes[0] != 0) result.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return result;
}

void register_factories(torch::Library& library) {
  library.impl("empty.memory_format", TORCH_FN(empty_memory_format));
  library.impl("empty_strided", TORCH_FN(empty_strided_kernel));
}

}  // namespace mojo::ops
