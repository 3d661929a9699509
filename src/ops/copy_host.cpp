// Copies between host and device, by the table of docs/stream-ordering.md.
#include <ATen/EmptyTensor.h>

#include "mojo/copy_plan.h"
#include "mojo/device_context.h"
#include "mojo/pinned.h"
#include "mojo/process.h"
#include "ops/copy_paths.h"
#include "torch_backend/current.h"
#include "torch_backend/errors.h"

namespace mojo::ops {

namespace {

CopyRequest describe_copy(CopyDirection direction, const DeviceContext& context, const at::Tensor& dst,
                          const at::Tensor& src, bool non_blocking) {
  const at::Tensor& host = direction == CopyDirection::host_to_device ? src : dst;
  CopyRequest request;
  request.direction = direction;
  request.bytes = bytes_of(dst);
  request.pinned = mojo::pinned_contains(host.const_data_ptr());
  request.non_blocking = non_blocking;
  request.same_dtype = same_dtype(dst, src);
  request.same_layout = same_layout(dst, src);
  request.device_reads_pinned_copies_async = context.has(Feature::async_host_copies);
  request.host_accessible = context.has(Feature::host_accessible_memory);
  return request;
}

// Whether the conversion may work on the caller's own memory: the queue can reach it, and the caller has said that it
// leaves the memory alone until the copy is done.
bool converts_in_place(const CopyRequest& request) noexcept {
  return request.pinned && request.non_blocking && request.host_accessible;
}

void enqueue_conversion_with_pinned(DeviceStream stream, const at::Tensor& dst, const at::Tensor& src,
                                    const void* pinned) {
  enqueue_conversion(stream, dst, src);
  mojo::pinned_record_use(pinned, stream);
}

}  // namespace

const char* copy_host_to_device(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const std::uint64_t waits_before = mojo::host_waits();
  bool waits = false;
  torch_backend::translated([&] {
    const c10::DeviceIndex index = dst.device().index();
    const DeviceContext context = torch_backend::context(index);
    const DeviceStream stream = torch_backend::current_stream(index);
    const CopyRequest request = describe_copy(CopyDirection::host_to_device, context, dst, src, non_blocking);
    const CopyPlan plan = plan_copy(request);
    waits = plan.blocks == HostBlocks::until_complete;

    if (plan.conversion == CopyConversion::none) {
      stream.upload(target_ptr(dst), src.const_data_ptr(), request.bytes, non_blocking);
      return;
    }
    if (converts_in_place(request)) {
      enqueue_conversion_with_pinned(stream, dst, src, src.const_data_ptr());
    } else {
      // The source's elements as they are, without gaps; the device brings them into the destination's dtype and order.
      const bool dense = src.is_non_overlapping_and_dense();
      const at::Tensor gathered = dense ? src : src.contiguous();
      const bool leave_to_queue = dense && non_blocking;
      if (is_linear(dst, gathered)) {
        stream.upload(target_ptr(dst), gathered.const_data_ptr(), request.bytes, leave_to_queue);
      } else {
        const at::Tensor arrived = temporary_like(gathered, index);
        stream.upload(target_ptr(arrived), gathered.const_data_ptr(), bytes_of(gathered), leave_to_queue);
        enqueue_conversion(stream, dst, arrived);
      }
    }
    // A device with one queue, where a query waits. It raises no failure of earlier work, as no upload does.
    if (waits) static_cast<void>(stream.query());
  });
  if (waits) return one_queue;
  return mojo::host_waits() != waits_before ? "the staging bound was reached" : nullptr;
}

const char* copy_device_to_host(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  bool waits = false;
  torch_backend::translated([&] {
    const c10::DeviceIndex index = src.device().index();
    const DeviceContext context = torch_backend::context(index);
    const DeviceStream stream = torch_backend::current_stream(index);
    const CopyRequest request = describe_copy(CopyDirection::device_to_host, context, dst, src, non_blocking);
    const CopyPlan plan = plan_copy(request);
    waits = plan.blocks == HostBlocks::until_complete;

    if (plan.conversion == CopyConversion::none) {
      stream.download(dst.mutable_data_ptr(), source_ptr(src), request.bytes, non_blocking);
      return;
    }
    if (converts_in_place(request)) {
      enqueue_conversion_with_pinned(stream, dst, src, dst.const_data_ptr());
      if (waits) stream.synchronize();
      return;
    }
    const at::Tensor converted = converted_for(dst, src);
    if (is_linear(dst, converted)) {
      stream.download(dst.mutable_data_ptr(), source_ptr(converted), request.bytes, non_blocking);
      return;
    }
    // A destination with gaps: the host fills it, so the data must be there first.
    waits = true;
    const at::Tensor arrived = at::detail::empty_cpu(converted.sizes(), converted.scalar_type());
    stream.download(arrived.mutable_data_ptr(), source_ptr(converted), request.bytes, /*non_blocking=*/false);
    dst.copy_(arrived);
  });
  return waits ? "the data is in host memory when the call returns" : nullptr;
}

}  // namespace mojo::ops
