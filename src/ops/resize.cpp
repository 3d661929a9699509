#include "ops/resize.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/ops/fill.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/safe_numerics.h>

#include <cstdint>
#include <limits>

#include "ops/op_counter.h"
#include "ops/shape_probe.h"

namespace mojo::ops {

namespace {

constinit OpCounter resize_counter{"aten::resize_"};

const at::Tensor& resize_kernel(const at::Tensor& self, at::IntArrayRef sizes,
                                std::optional<at::MemoryFormat> memory_format) {
  const auto old_bytes = static_cast<std::int64_t>(self.storage().nbytes());
  const void* const old_data = self.storage().data();
  resize_in_place(self, sizes);
  if (old_data != nullptr && self.storage().data() != old_data) resize_counter.queued();  // a copy of what was there
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*memory_format);
  }
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory()))
    at::native::fill_resize_deterministic_(self, old_bytes);
  return self;
}

}  // namespace

void resize_in_place(const at::Tensor& tensor, at::IntArrayRef sizes, at::OptionalIntArrayRef strides) {
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  if (tensor.sizes() == sizes && (!strides.has_value() || tensor.strides() == *strides)) return;
  // What setting the sizes would check, which happens last so that a tensor that cannot be resized stays as it was.
  std::uint64_t elements = 1;
  const bool overflows = c10::safe_multiplies_u64(sizes, &elements);
  TORCH_CHECK(!overflows && elements <= std::uint64_t{std::numeric_limits<std::int64_t>::max()},
              "numel: integer multiplication overflow");
  const std::size_t item = tensor.itemsize();
  const auto offset = static_cast<std::size_t>(tensor.storage_offset());
  const std::size_t bytes = strides.has_value() ? at::detail::computeStorageNbytes(sizes, *strides, item, offset)
                                                : at::detail::computeStorageNbytesContiguous(sizes, item, offset);
  const c10::Storage& storage = tensor.storage();
  // Nothing to hold in it: the offset alone must not grow it.
  if (elements != 0 && bytes > storage.nbytes()) {
    refuse_while_probing();
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(storage, bytes);
  }
  if (strides.has_value())
    impl->set_sizes_and_strides(sizes, *strides);
  else
    impl->set_sizes_contiguous(sizes);
}

void register_resize(torch::Library& library) { library.impl("resize_", TORCH_FN(resize_kernel)); }

}  // namespace mojo::ops
