#include "runtime/copy/transfer.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "mojo/pinned.h"
#include "runtime/copy/staging.h"
#include "runtime/device_state.h"
#include "runtime/pinned_memory.h"

namespace mojo::runtime {
namespace {

using driver::Capability;

CopyRequest describe_request(detail::StreamState& stream, CopyDirection direction, const void* host,
                             std::uint64_t bytes, bool non_blocking) noexcept {
  auto& device = stream.device();
  CopyRequest request;
  request.direction = direction;
  request.bytes = bytes;
  request.pinned = pinned_contains(host);
  request.non_blocking = non_blocking;
  request.device_reads_pinned_copies_async = device.capabilities().has(Capability::async_host_copies);
  request.host_accessible = device.host_accessible();
  request.staging_bytes = device.staging_bytes();
  return request;
}

Status enqueue_copy(detail::StreamState& stream, const driver::Copy& copy, std::uint64_t* number = nullptr) noexcept {
  return stream.enqueue([&](driver::Queue& queue, std::uint64_t n) noexcept { return queue.copy(copy, n); }, number);
}

driver::Copy upload_of(DevicePtr dst, const void* src, std::uint64_t bytes) noexcept {
  driver::Copy copy;
  copy.kind = driver::CopyKind::host_to_device;
  copy.dst = dst;
  copy.host_src = src;
  copy.bytes = bytes;
  return copy;
}

driver::Copy download_of(void* dst, DevicePtr src, std::uint64_t bytes) noexcept {
  driver::Copy copy;
  copy.kind = driver::CopyKind::device_to_host;
  copy.host_dst = dst;
  copy.src = src;
  copy.bytes = bytes;
  return copy;
}

void record_host_use(detail::StreamState& stream, const void* host, std::uint64_t number) noexcept {
  static_cast<void>(PinnedMemory::instance().allocator().record_use(host, {stream.uid(), number}));
}

Status upload_staged(detail::StreamState& stream, DevicePtr dst, const void* src, std::uint64_t bytes) noexcept {
  memory::PinnedAllocation part;
  MOJO_RETURN_IF_ERROR(acquire_staging(stream, bytes, part));
  std::memcpy(part.ptr, src, bytes);
  std::uint64_t number = 0;
  Status status = enqueue_copy(stream, upload_of(dst, part.ptr, bytes), &number);
  release_staging(stream, part, bytes, status.ok() ? number : 0);
  return status;
}

std::uint64_t part_size(detail::StreamState& stream) noexcept {
  // At least two parts fit under the bound, so that one is filled while another flies.
  return std::clamp<std::uint64_t>(stream.device().staging_bytes() / 2, 1, staging_part_bytes);
}

Status upload_in_parts(detail::StreamState& stream, DevicePtr dst, const void* src, std::uint64_t bytes) noexcept {
  const std::uint64_t part = part_size(stream);
  for (std::uint64_t done = 0; done < bytes; done += part) {
    const std::uint64_t now = std::min(part, bytes - done);
    MOJO_RETURN_IF_ERROR(upload_staged(stream, dst + done, static_cast<const char*>(src) + done, now));
  }
  return {};
}

// Two parts: the driver fills one while the host empties the other.
Status download_in_parts(detail::StreamState& stream, void* dst, DevicePtr src, std::uint64_t bytes) noexcept {
  struct Part {
    memory::PinnedAllocation memory;
    std::unique_ptr<detail::EventState> copied;
    std::uint64_t offset = 0, bytes = 0;
  };
  const std::uint64_t size = part_size(stream);
  std::deque<Part> flying;
  auto& allocator = PinnedMemory::instance().allocator();
  auto& device = stream.device();

  const auto empty_oldest = [&]() noexcept -> Status {
    Part part = std::move(flying.front());
    flying.pop_front();
    detail::StreamState* recorded = nullptr;
    std::uint64_t number = 0;
    Status status = part.copied->synchronize(recorded, number);
    if (status.ok()) std::memcpy(static_cast<char*>(dst) + part.offset, part.memory.ptr, part.bytes);
    device.recycle(std::move(part.copied));
    static_cast<void>(allocator.free(part.memory.block));
    return status;
  };

  Status status;
  for (std::uint64_t done = 0; done < bytes && status.ok(); done += size) {
    if (flying.size() == 2) status = empty_oldest();
    if (!status.ok()) break;
    Part part;
    part.offset = done;
    part.bytes = std::min(size, bytes - done);
    status = device.create_event({}, part.copied);
    if (!status.ok()) break;
    status = PinnedMemory::instance().allocate(device, part.bytes, part.memory);
    if (!status.ok()) break;
    std::uint64_t number = 0;
    status = enqueue_copy(stream, download_of(part.memory.ptr, src + done, part.bytes), &number);
    if (status.ok()) {
      static_cast<void>(allocator.record_use(part.memory.block, {stream.uid(), number}));
      status = part.copied->record(stream);
    }
    if (!status.ok()) {
      static_cast<void>(allocator.free(part.memory.block));
      break;
    }
    flying.push_back(std::move(part));
  }
  while (!flying.empty()) {
    const Status emptied = empty_oldest();
    if (status.ok()) status = emptied;
  }
  return status;
}

}  // namespace

Status upload(detail::StreamState& stream, DevicePtr dst, const void* src, std::uint64_t bytes,
              bool non_blocking) noexcept {
  if (bytes == 0) return usable();
  const CopyRequest request = describe_request(stream, CopyDirection::host_to_device, src, bytes, non_blocking);
  const CopyPlan plan = plan_copy(request);
  switch (plan.transport) {
    case CopyTransport::staged: return upload_staged(stream, dst, src, bytes);
    case CopyTransport::staged_in_parts: return upload_in_parts(stream, dst, src, bytes);
    case CopyTransport::direct: break;
  }
  std::uint64_t number = 0;
  driver::Copy copy = upload_of(dst, src, bytes);
  copy.host_pageable = !request.pinned;
  if (plan.blocks == HostBlocks::until_complete) {
    // The driver of a device with one queue copies before it returns: what is queued before is waited for first, where
    // no lock is held.
    MOJO_RETURN_IF_ERROR(stream.wait_idle());
    MOJO_RETURN_IF_ERROR(enqueue_copy(stream, copy, &number));
    MOJO_RETURN_IF_ERROR(stream.wait_idle());
  } else {
    MOJO_RETURN_IF_ERROR(enqueue_copy(stream, copy, &number));
  }
  if (plan.records_host_use) record_host_use(stream, src, number);
  return {};
}

Status download(detail::StreamState& stream, void* dst, DevicePtr src, std::uint64_t bytes,
                bool non_blocking) noexcept {
  if (bytes == 0) return usable();
  const CopyRequest request = describe_request(stream, CopyDirection::device_to_host, dst, bytes, non_blocking);
  const CopyPlan plan = plan_copy(request);
  if (plan.transport != CopyTransport::direct) {
    MOJO_RETURN_IF_ERROR(download_in_parts(stream, dst, src, bytes));
    return stream.take_failure(stream.position());
  }
  if (plan.blocks == HostBlocks::until_complete && request.host_accessible) {
    // The host copies for itself once the stream is done: nothing that is queued names the caller's memory, whatever
    // becomes of the wait, and no thread need be woken for the bytes.
    const std::uint64_t number = stream.position();
    MOJO_RETURN_IF_ERROR(stream.wait_idle());
    MOJO_RETURN_IF_ERROR(stream.take_failure(number));
    std::memcpy(dst, src.opaque(), bytes);
    return {};
  }
  std::uint64_t number = 0;
  MOJO_RETURN_IF_ERROR(enqueue_copy(stream, download_of(dst, src, bytes), &number));
  if (plan.records_host_use) record_host_use(stream, dst, number);
  if (plan.blocks == HostBlocks::no) return {};
  MOJO_RETURN_IF_ERROR(stream.wait_idle());
  return stream.take_failure(number);
}

}  // namespace mojo::runtime
