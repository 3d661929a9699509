#include "runtime/copy/transfer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>

#include "mojo/pinned.h"
#include "runtime/copy/staging.h"
#include "runtime/device_state.h"
#include "runtime/pinned_memory.h"
#include "runtime/process_state.h"

namespace mojo::runtime {
namespace {

using driver::Capability;

// Under the stream's mutex, so a few microseconds at most.
constexpr std::uint64_t most_read_at_once = std::uint64_t{64} << 10;

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

// If there is no host memory to note the use in, it is over before this returns.
void record_host_use(detail::StreamState& stream, const void* host, std::uint64_t number) noexcept {
  const Status status = PinnedMemory::instance().allocator().record_use(host, {stream.uid(), number});
  if (!status.ok()) static_cast<void>(stream.wait_idle());
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

// A queued read for a caller that waits. What is queued names this, not the caller's memory, so that a caller whose wait
// fails can leave; then the read is cancelled.
struct AwaitedRead {
  std::mutex mutex;
  void* dst;
  const void* src;
  std::uint64_t bytes;
  std::atomic<int> owners{2};  // the caller and the task

  AwaitedRead(void* to, const void* from, std::uint64_t size) noexcept : dst(to), src(from), bytes(size) {}
  static Status run(void* self) noexcept {
    auto* const read = static_cast<AwaitedRead*>(self);
    {
      const std::lock_guard lock(read->mutex);
      if (read->dst != nullptr) std::memcpy(read->dst, read->src, read->bytes);
    }
    let_go(self);
    return {};
  }
  void cancel() noexcept {
    const std::lock_guard lock(mutex);
    dst = nullptr;
  }
  static void let_go(void* self) noexcept {
    auto* const read = static_cast<AwaitedRead*>(self);
    if (read->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete read;
  }
};

// The host reads device memory that it can reach. One operation of the stream, like any other copy.
Status read_and_wait(detail::StreamState& stream, void* dst, DevicePtr src, std::uint64_t bytes) noexcept {
  if (bytes <= most_read_at_once) {
    bool ran = false;
    Status failure;
    MOJO_RETURN_IF_ERROR(stream.run_if_idle(ran, [&]() noexcept {
      failure = stream.take_failure();
      if (failure.ok()) std::memcpy(dst, src.opaque(), bytes);
    }));
    if (ran) {
      count_host_wait();
      return failure;
    }
  }
  auto* const read = new (std::nothrow) AwaitedRead(dst, src.opaque(), bytes);
  if (read == nullptr) return {StatusCode::out_of_memory, "no host memory for a queued copy"};
  driver::HostTask task;
  task.run = &AwaitedRead::run;
  task.drop = &AwaitedRead::let_go;
  task.state = read;
  task.name = "download";
  const Access access{src, bytes, AccessMode::read};
  std::uint64_t number = 0;
  Status status = stream.enqueue(
      [&](driver::Queue& queue, std::uint64_t n) noexcept {
        return queue.host_task(task, {&access, 1}, n);
      },
      &number);
  if (!status.ok()) {
    delete read;
    return status;
  }
  status = stream.wait_idle();
  if (!status.ok()) read->cancel();
  AwaitedRead::let_go(read);
  MOJO_RETURN_IF_ERROR(status);
  return stream.take_failure(number);
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
  if (plan.blocks == HostBlocks::until_complete && request.host_accessible &&
      stream.device().capabilities().has(Capability::host_functions)) {
    return read_and_wait(stream, dst, src, bytes);
  }
  std::uint64_t number = 0;
  MOJO_RETURN_IF_ERROR(enqueue_copy(stream, download_of(dst, src, bytes), &number));
  if (plan.records_host_use) record_host_use(stream, dst, number);
  if (plan.blocks == HostBlocks::no) return {};
  MOJO_RETURN_IF_ERROR(stream.wait_idle());
  return stream.take_failure(number);
}

}  // namespace mojo::runtime
