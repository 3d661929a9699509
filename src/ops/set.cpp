#include <ATen/native/Resize.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
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

// Whether `self.data = other` may take over what `other` has. Core asks this for `module.to(device)` too, and says no for
// device types that it does not know: then parameters would be replaced, ties between them lost, and an optimizer made
// before would train what nobody uses.
bool may_take_over(const at::Tensor& self, const at::Tensor& other) {
  const auto is_dense = [](const at::Tensor& tensor) {
    const c10::DispatchKeySet keys = tensor.key_set();
    return tensor.layout() == at::kStrided && (tensor.is_cpu() || tensor.is_privateuseone()) &&
           keys.has_any(c10::DispatchKeySet(c10::DispatchKey::Dense)) && !keys.has(c10::DispatchKey::Python);
  };
  return self.key_set() == other.key_set() || (is_dense(self) && is_dense(other));
}

}  // namespace

void register_set(torch::Library& library) {
  library.impl("set_", TORCH_FN(set_empty));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage));
  library.impl("set_.source_Storage",
               TORCH_FN(static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(at::native::set_)));
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  library.impl("_has_compatible_shallow_copy_type", TORCH_FN(may_take_over));
  library.impl("is_set_to", TORCH_FN(at::native::is_set_to));
}

}  // namespace mojo::ops
