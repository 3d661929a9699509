#include "ops/host_alias.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/clone.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "mojo/pinned.h"

namespace mojo::ops {

TensorDescriptor::TensorDescriptor(const at::Tensor& tensor, std::uint8_t flags)
    : dtype_(tensor.scalar_type()), flags_(static_cast<std::uint8_t>(flags | is_defined)) {
  const c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  shape_.set_sizes(impl->sizes());
  shape_.set_strides(impl->strides());
  if (impl->is_conj()) flags_ |= is_conj;
  if (impl->is_neg()) flags_ |= is_neg;
  if (impl->is_wrapped_number()) flags_ |= is_wrapped_number;
}

TensorDescriptor::TensorDescriptor(const at::Tensor& tensor, bool written) : TensorDescriptor(tensor, std::uint8_t{0}) {
  // Nothing would keep a CPU tensor's own memory until the work has run.
  TORCH_CHECK(tensor.is_privateuseone() || pinned_contains(tensor.storage().data()),
              "Expected all tensors to be on the same device, but found at least two devices, ",
              c10::DeviceType::PrivateUse1, " and ", tensor.device(), "!");
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  memory_.data = written ? storage->mutable_data() : const_cast<void*>(storage->data());
  memory_.bytes = storage->nbytes();
  memory_.offset = tensor.storage_offset();
}

TensorDescriptor TensorDescriptor::holding(const at::Tensor& tensor) {
  TensorDescriptor result(tensor, std::uint8_t{holds_value});
  if (tensor.dim() == 0) {
    std::memcpy(result.value_, tensor.const_data_ptr(), tensor.itemsize());
  } else {
    // A clone resolves conj and neg bits; its strides are those of the original only if that was dense.
    result.copy_ = tensor.clone();
    result.shape_.set_strides(result.copy_.strides());
    result.flags_ &= static_cast<std::uint8_t>(~(is_conj | is_neg));
  }
  return result;
}

bool TensorDescriptor::has_form_of(const at::Tensor& alias) const {
  return alias.strides() == shape_.strides_arrayref() && alias.storage().data() == memory_.data &&
         alias.storage_offset() == memory_.offset && alias.is_conj() == ((flags_ & is_conj) != 0) &&
         alias.is_neg() == ((flags_ & is_neg) != 0);
}

Access TensorDescriptor::access(bool written) const noexcept {
  if (!(flags_ & is_defined) || (flags_ & holds_value)) return {};
  const std::size_t item = c10::elementSize(dtype_);
  std::int64_t last = 0;
  const at::IntArrayRef sizes = shape_.sizes_arrayref(), strides = shape_.strides_arrayref();
  for (std::size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == 0) return {};
    last += (sizes[dim] - 1) * strides[dim];
  }
  return {DevicePtr::from_opaque(memory_.data) + static_cast<std::uint64_t>(memory_.offset) * item,
          static_cast<std::uint64_t>(last + 1) * item, written ? AccessMode::read_write : AccessMode::read};
}

at::Tensor as_cpu(const TensorDescriptor& descriptor, bool resizable) {
  using Self = TensorDescriptor;
  if (!(descriptor.flags_ & Self::is_defined)) return {};
  if (descriptor.copy_.defined()) return descriptor.copy_;
  const bool value = descriptor.flags_ & Self::holds_value;
  void* const data = value ? const_cast<std::byte*>(descriptor.value_) : descriptor.memory_.data;
  const std::size_t bytes = value ? sizeof(descriptor.value_) : descriptor.memory_.bytes;
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, c10::DataPtr(data, at::Device(at::kCPU)),
      resizable ? c10::GetAllocator(c10::DeviceType::CPU) : nullptr, resizable));
  return as_cpu(descriptor, storage);
}

at::Tensor as_cpu(const TensorDescriptor& descriptor, const c10::Storage& storage) {
  using Self = TensorDescriptor;
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(descriptor.dtype_));
  c10::TensorImpl* const impl = result.unsafeGetTensorImpl();
  const std::int64_t offset = descriptor.flags_ & Self::holds_value ? 0 : descriptor.memory_.offset;
  impl->set_sizes_and_strides(descriptor.shape_.sizes_arrayref(), descriptor.shape_.strides_arrayref(), offset);
  if (descriptor.flags_ & Self::is_conj) impl->_set_conj(true);
  if (descriptor.flags_ & Self::is_neg) impl->_set_neg(true);
  if (descriptor.flags_ & Self::is_wrapped_number) impl->set_wrapped_number(true);
  return result;
}

}  // namespace mojo::ops
