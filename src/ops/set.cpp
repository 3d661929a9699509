#include <ATen/native/Resize.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/Storage.h>

#include <utility>

#include "ops/resize.h"
#include "ops/views.h"
#include "torch_backend/device_allocator.h"

namespace mojo::ops {

namespace {

at::Tensor& set_storage(at::Tensor& self, at::Storage source, std::int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  at::native::checkSetStorage(self, std::move(source), offset, sizes, strides);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  resize_in_place(self, sizes, strides.data() != nullptr ? at::OptionalIntArrayRef(strides) : std::nullopt);
  return self;
}

// An empty tensor with a storage of its own.
at::Tensor& set_empty(at::Tensor& self) {
  at::Storage storage(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, self.device()),
                      torch_backend::device_allocator(), /*resizable=*/true);
  return set_storage(self, std::move(storage), 0, {0}, {});
}

// Whether `self` may become what `from` is in place: `parameter.data = tensor`, and so `module.to(device)`, which keeps
// parameters, and what shares or refers to them, the objects that they are only if it may. Core says so of any two
// dense tensors of its own backends.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  using c10::BackendComponent;
  const auto is_dense = [](c10::DispatchKeySet keys) {
    constexpr c10::DispatchKeySet backends({BackendComponent::CPUBit, BackendComponent::CUDABit,
                                            BackendComponent::HIPBit, BackendComponent::MPSBit,
                                            BackendComponent::XPUBit, BackendComponent::PrivateUse1Bit});
    return keys.has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) && keys.has_any(backends);
  };
  return self.key_set() == from.key_set() || (is_dense(self.key_set()) && is_dense(from.key_set()));
}

}  // namespace

void register_set(torch::Library& library) {
  library.impl("set_", TORCH_FN(set_empty));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  library.impl("set_.source_Storage",
               TORCH_FN(static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(at::native::set_)));
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  library.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
}

}  // namespace mojo::ops
