#include "runtime/buffer_check.h"

#include <cstdio>
#include <string>

#include "runtime/device_state.h"
#include "runtime/registry.h"

namespace mojo::runtime {

Status check_alive(const char* call, const detail::RawBuffer& buffer) noexcept {
  if (buffer.count == 0) return {};
  detail::DeviceState* device = Registry::instance().opened(buffer.device);
  if (device == nullptr) {
    return {StatusCode::invalid_argument,
            std::string(call) + ": a buffer of no device: it was not allocated, or has been moved from"};
  }
  if (!device->checks_buffers()) [[likely]]
    return {};
  const memory::Allocation found = device->allocator().find(buffer.ptr);
  if (found.block != nullptr && buffer.bytes() <= found.bytes - (buffer.ptr - found.ptr)) return {};
  char text[200];
  std::snprintf(text, sizeof text, ": the buffer of %llu bytes at 0x%llx %s",
                static_cast<unsigned long long>(buffer.bytes()), static_cast<unsigned long long>(buffer.ptr.address),
                found.block == nullptr
                    ? "lies in no allocation of the device: it is used after it was freed, or was never allocated here"
                    : "is larger than the memory it lies in");
  return {StatusCode::invalid_argument, call + std::string(text)};
}

Status check_buffer(const char* call, const detail::StreamState& stream, const detail::RawBuffer& buffer) noexcept {
  if (buffer.count == 0) return {};
  if (buffer.device != stream.device().index()) {
    if (buffer.device < 0) return check_alive(call, buffer);
    return {StatusCode::invalid_argument, std::string(call) + ": a buffer of device " + std::to_string(buffer.device) +
                                              " on a stream of device " + std::to_string(stream.device().index())};
  }
  return stream.device().checks_buffers() ? check_alive(call, buffer) : Status{};
}

}  // namespace mojo::runtime
