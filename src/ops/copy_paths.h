// What it is: the parts of copy_into, one for each pair of places. Internal to copy_*.cpp. They take tensors that
//   copy_into has checked: sizes that broadcast, at least one element, no real destination of a complex source.
// Ordering, threads, errors: see copy.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "mojo/device_ptr.h"
#include "mojo/device_stream.h"

namespace mojo::ops {

// Each gives why it made the host wait, or null.
const char* copy_within_device(const at::Tensor& dst, const at::Tensor& src);
const char* copy_between_devices(const at::Tensor& dst, const at::Tensor& src);
const char* copy_host_to_device(const at::Tensor& dst, const at::Tensor& src, bool non_blocking);
const char* copy_device_to_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking);

inline constexpr const char* one_queue = "the device has one queue";

// Whether the two hold the same elements in the same order, conj and neg bits included.
bool same_dtype(const at::Tensor& a, const at::Tensor& b) noexcept;
bool same_layout(const at::Tensor& a, const at::Tensor& b);
// Whether one linear copy of bytes_of(dst) bytes is dst.copy_(src).
inline bool is_linear(const at::Tensor& dst, const at::Tensor& src) {
  return same_dtype(dst, src) && same_layout(dst, src);
}
inline std::uint64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.numel()) * tensor.itemsize();
}

// Enqueues dst.copy_(src) in whatever dtypes and layouts; each is memory that work on `stream` may touch: device memory
// of its device or, where host tasks may touch device memory, pinned memory.
void enqueue_conversion(DeviceStream stream, const at::Tensor& dst, const at::Tensor& src);

inline DevicePtr source_ptr(const at::Tensor& tensor) { return DevicePtr::from_opaque(tensor.const_data_ptr()); }
inline DevicePtr target_ptr(const at::Tensor& tensor) { return DevicePtr::from_opaque(tensor.mutable_data_ptr()); }

// An uninitialised tensor of device `index` that can be copied into or out of `like` linearly, if `like` is dense;
// else a contiguous one without conj and neg bits. For a temporary: freed, its memory is reused in stream order.
at::Tensor temporary_like(const at::Tensor& like, c10::DeviceIndex index);

// The elements of `src`, a device tensor, on its own device in the form of temporary_like(dst): `src` itself if it
// has that form, else a temporary that the current stream of that device converts it into.
at::Tensor converted_for(const at::Tensor& dst, const at::Tensor& src);

}  // namespace mojo::ops
