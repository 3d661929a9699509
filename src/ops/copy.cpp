#include "ops/copy.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/real.h>
#include <c10/util/Exception.h>

#include "ops/copy_paths.h"
#include "ops/resize.h"
#include "ops/shape_probe.h"
#include "torch_backend/dtypes.h"

namespace mojo::ops {

namespace {

bool is_same_view(const at::Tensor& dst, const at::Tensor& src) {
  return dst.is_same(src) || (dst.is_alias_of(src) && dst.storage_offset() == src.storage_offset() &&
                              dst.strides() == src.strides() && dst.sizes() == src.sizes() && same_dtype(dst, src));
}

// The errors of at::copy_ on CPU, in its order.
void check_copy(const at::Tensor& dst, const at::Tensor& src) {
  TORCH_CHECK_NOT_IMPLEMENTED(!dst.is_quantized() && !src.is_quantized(),
                              "mojo backend: quantized tensors are not supported on the device");
  if (dst.scalar_type() != src.scalar_type()) {
    for (const at::ScalarType type : {dst.scalar_type(), src.scalar_type()}) {
      TORCH_CHECK_NOT_IMPLEMENTED(torch_backend::is_convertible(type), "\"copy_\" not implemented for '", type, "'");
    }
  }
  at::assert_no_internal_overlap(dst);
  at::assert_no_partial_overlap(dst, src);
  if (dst.sizes() == src.sizes()) return;
  const at::DimVector shape = at::infer_size_dimvector(dst.sizes(), src.sizes());
  TORCH_CHECK(dst.sizes() == shape, "output with shape ", dst.sizes(), " doesn't match the broadcast shape ", shape);
}

// Why the host waited, or null.
const char* copy_by_place(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const bool dst_on_device = dst.is_privateuseone();
  const bool src_on_device = src.is_privateuseone();
  if (dst_on_device && src_on_device)
    return dst.device() == src.device() ? copy_within_device(dst, src) : copy_between_devices(dst, src);
  if (dst_on_device && src.is_cpu()) return copy_host_to_device(dst, src, non_blocking);
  if (src_on_device && dst.is_cpu()) return copy_device_to_host(dst, src, non_blocking);
  // An accelerator of the torch build itself. Its streams are not ours to order: by way of the CPU, and blocking.
  dst.copy_(src.to(at::kCPU), /*non_blocking=*/false);
  return "another accelerator: by way of the CPU";
}

constinit OpCounter copy_from_counter{"aten::_copy_from"};
constinit OpCounter copy_from_and_resize_counter{"aten::_copy_from_and_resize"};

at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool non_blocking) {
  copy_into(dst, src, non_blocking, copy_from_counter);
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& src, const at::Tensor& dst) {
  if (dst.is_privateuseone())
    resize_in_place(dst, src.sizes());
  else
    dst.resize_(src.sizes());
  copy_into(dst, src, /*non_blocking=*/false, copy_from_and_resize_counter);
  return dst;
}

}  // namespace

void copy_into(const at::Tensor& dst, const at::Tensor& src, bool non_blocking, OpCounter& counter) {
  if (is_same_view(dst, src)) return;
  check_copy(dst, src);
  if (dst.numel() == 0) return;
  refuse_while_probing();
  at::Tensor source = src;
  if (src.is_complex() && !dst.is_complex() && dst.scalar_type() != at::kBool) {
    // Said here and not by the kernel, whose thread has no Python to warn in.
    TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
    source = at::real(src);
  }
  if (const char* const reason = copy_by_place(dst, source, non_blocking); reason != nullptr)
    counter.waited(reason);
  else
    counter.queued();
}

void register_copies(torch::Library& library) {
  library.impl("_copy_from", TORCH_FN(copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
}

}  // namespace mojo::ops
