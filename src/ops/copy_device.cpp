// Copies within a device and between devices.
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "mojo/device_context.h"
#include "ops/copy_paths.h"
#include "ops/factories.h"
#include "ops/host_alias.h"
#include "ops/task.h"
#include "torch_backend/current.h"
#include "torch_backend/errors.h"

namespace mojo::ops {

namespace {

// Later work of `later` runs after all that `earlier` has queued so far. A device without events has one stream, and
// waits on the host: false.
bool order_after(DeviceStream later, DeviceStream earlier) {
  const auto has_events = [](DeviceStream stream) {
    return torch_backend::context(static_cast<c10::DeviceIndex>(stream.device_index())).has(Feature::events);
  };
  if (has_events(later) && has_events(earlier)) {
    later.enqueue_wait_for(earlier);
    return true;
  }
  earlier.synchronize();
  return false;
}

// A linear copy that is ordered on both devices' current streams. Why the host waited, or null.
const char* transfer(const at::Tensor& dst, const at::Tensor& src) {
  bool on_device = false;
  torch_backend::translated([&] {
    const DeviceStream to = torch_backend::current_stream(dst.device().index());
    const DeviceStream from = torch_backend::current_stream(src.device().index());
    on_device = order_after(to, from);
    to.copy_device_to_device(target_ptr(dst), source_ptr(src), bytes_of(dst), src.device().index());
    // Else the source's memory could be overwritten, or freed and reused, before it is read.
    on_device &= order_after(from, to);
  });
  return on_device ? nullptr : one_queue;
}

bool same_strides(const at::Tensor& a, const at::Tensor& b) {
  for (std::int64_t dim = 0; dim < a.dim(); ++dim)
    if (a.size(dim) != 1 && a.stride(dim) != b.stride(dim)) return false;
  return true;
}

}  // namespace

bool same_dtype(const at::Tensor& a, const at::Tensor& b) noexcept {
  return a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

bool same_layout(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  if (a.is_contiguous() && b.is_contiguous()) return true;
  return a.is_non_overlapping_and_dense() && same_strides(a, b);
}

namespace {

bool is_reduced_float(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

// CPU's fast kernel between float and its reduced forms (torch 2.13) does not look at the neg bit.
void convert(const at::Tensor& to, const at::Tensor& from) {
  const at::ScalarType a = to.scalar_type(), b = from.scalar_type();
  const bool forgets_neg = (a == at::kFloat && is_reduced_float(b)) || (is_reduced_float(a) && b == at::kFloat);
  if (forgets_neg && (to.is_neg() || from.is_neg()))
    to.copy_(from.resolve_neg().to(a));
  else
    to.copy_(from);
}

}  // namespace

void enqueue_conversion(DeviceStream stream, const at::Tensor& dst, const at::Tensor& src) {
  TensorDescriptor to(dst), from(src, /*written=*/false);
  std::array<Access, 2> accesses;  // of device memory: pinned memory is not an observer's business
  std::size_t count = 0;
  if (dst.is_privateuseone()) accesses[count++] = to.access(true);
  if (src.is_privateuseone()) accesses[count++] = from.access(false);
  torch_backend::translated([&] {
    enqueue_cpu_task(
        stream, "aten::copy_", [to = std::move(to), from = std::move(from)] { convert(as_cpu(to), as_cpu(from)); },
        std::span<const Access>(accesses.data(), count));
  });
}

at::Tensor temporary_like(const at::Tensor& like, c10::DeviceIndex index) {
  if (!like.is_non_overlapping_and_dense()) return empty_contiguous(like.sizes(), like.scalar_type(), index);
  at::Tensor result = empty_strided(like.sizes(), like.strides(), like.scalar_type(), index);
  result._set_conj(like.is_conj());
  result._set_neg(like.is_neg());
  return result;
}

at::Tensor converted_for(const at::Tensor& dst, const at::Tensor& src) {
  if (is_linear(dst, src)) return src;
  if (!dst.is_non_overlapping_and_dense() && src.is_contiguous() && src.sizes() == dst.sizes() &&
      src.scalar_type() == dst.scalar_type() && !src.is_conj() && !src.is_neg())
    return src;
  const c10::DeviceIndex index = src.device().index();
  at::Tensor converted = temporary_like(dst, index);
  enqueue_conversion(torch_backend::current_stream(index), converted, src);
  return converted;
}

const char* copy_within_device(const at::Tensor& dst, const at::Tensor& src) {
  const DeviceStream stream = torch_backend::current_stream(dst.device().index());
  if (!is_linear(dst, src)) {
    enqueue_conversion(stream, dst, src);
    return nullptr;
  }
  const DevicePtr to = target_ptr(dst), from = source_ptr(src);
  if (to != from) torch_backend::translated([&] { stream.copy_device_to_device(to, from, bytes_of(dst)); });
  return nullptr;
}

const char* copy_between_devices(const at::Tensor& dst, const at::Tensor& src) {
  // Converted on the source's device; a destination with gaps is filled from a temporary beside it.
  const at::Tensor converted = converted_for(dst, src);
  if (is_linear(dst, converted)) return transfer(dst, converted);
  const c10::DeviceIndex to = dst.device().index();
  const at::Tensor arrived = temporary_like(converted, to);
  const char* const reason = transfer(arrived, converted);
  enqueue_conversion(torch_backend::current_stream(to), dst, arrived);
  return reason;
}

}  // namespace mojo::ops
