// Sizes of buffers, and copies and fills of them.
#include "mojo/buffer.h"
#include "mojo/device_stream.h"
#include "mojo/error.h"
#include "runtime/buffer_check.h"
#include "runtime/copy/transfer.h"
#include "runtime/device_state.h"

namespace mojo {
namespace {

// More than any machine has, and small enough that sizes can be rounded up and added without care.
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 56;

void check_counts(std::uint64_t destination, std::uint64_t source) {
  if (destination == source) return;
  throw_status({StatusCode::invalid_argument, "copy: the destination has " + std::to_string(destination) +
                                                  " elements, the source " + std::to_string(source)});
}

bool overlap(const detail::RawBuffer& a, const detail::RawBuffer& b) noexcept {
  return a.ptr < b.ptr + b.bytes() && b.ptr < a.ptr + a.bytes();
}

std::string counted(ElementCount count) {
  return count.negative() ? std::to_string(static_cast<std::int64_t>(count.value())) : std::to_string(count.value());
}

}  // namespace

std::uint64_t ElementCount::bytes(std::size_t element_bytes, const char* call) const {
  if (negative_) {
    throw_status(
        {StatusCode::invalid_argument, std::string(call) + ": " + counted(*this) + " elements were asked for"});
  }
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(value_, std::uint64_t{element_bytes}, &bytes) || bytes > most_bytes) {
    throw_status({StatusCode::out_of_range, std::string(call) + ": " + counted(*this) + " elements of " +
                                                std::to_string(element_bytes) +
                                                " bytes are more than can be addressed"});
  }
  return bytes;
}

void detail::check_part(std::uint64_t size, ElementCount offset, ElementCount count) {
  if (!offset.negative() && !count.negative() && offset.value() <= size && count.value() <= size - offset.value()) {
    return;
  }
  throw_status({StatusCode::out_of_range, "part: " + counted(count) + " elements from " + counted(offset) +
                                              " on are not all inside a buffer of " + std::to_string(size)});
}

void DeviceStream::copy_buffers(const detail::RawBuffer& dst, const detail::RawBuffer& src) const {
  check_counts(dst.count, src.count);
  const int here = device_index();
  if (dst.count != 0 && dst.device != here && src.device != here)
    throw_if_failed(runtime::check_buffer("copy", *state_, dst));
  throw_if_failed(runtime::check_alive("copy", dst));
  throw_if_failed(runtime::check_alive("copy", src));
  driver::Copy copy;
  copy.kind = driver::CopyKind::device_to_device;
  copy.dst = dst.ptr;
  copy.src = src.ptr;
  copy.bytes = dst.bytes();
  if (dst.device != src.device) {
    copy.dst_device = dst.device;
    copy.src_device = src.device;
  } else if (dst.ptr != src.ptr && overlap(dst, src)) {
    throw_status({StatusCode::invalid_argument, "copy: source and destination overlap"});
  }
  throw_if_failed(
      state_->enqueue([&](driver::Queue& queue, std::uint64_t number) noexcept { return queue.copy(copy, number); }));
}

void DeviceStream::upload_buffer(const detail::RawBuffer& dst, const void* src, std::uint64_t count) const {
  check_counts(dst.count, count);
  throw_if_failed(runtime::check_buffer("copy", *state_, dst));
  throw_if_failed(runtime::upload(*state_, dst.ptr, src, dst.bytes(), true));
}

void DeviceStream::download_buffer(void* dst, std::uint64_t count, const detail::RawBuffer& src) const {
  check_counts(count, src.count);
  throw_if_failed(runtime::check_buffer("copy", *state_, src));
  throw_if_failed(runtime::download(*state_, dst, src.ptr, src.bytes(), true));
}

void DeviceStream::fill_buffer(const detail::RawBuffer& dst, std::uint64_t pattern) const {
  throw_if_failed(runtime::check_buffer("fill", *state_, dst));
  fill(dst.ptr, dst.bytes(), pattern, dst.element_bytes);
}

}  // namespace mojo
