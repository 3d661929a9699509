#include "torch_backend/errors.h"

#include <c10/util/Exception.h>

#include <string_view>

namespace mojo::torch_backend {

namespace {

constexpr std::string_view prefix = "mojo backend: ";

}  // namespace

std::string prefixed(const std::string& text) { return text.starts_with(prefix) ? text : std::string(prefix) + text; }

void throw_translated(const Error& error) {
  const std::string text = prefixed(error.what());
  if (error.code() == StatusCode::device_lost) {
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
                                static_cast<std::int32_t>(error.code()), text);
  }
  TORCH_CHECK(false, text);
}

void throw_translated(const OutOfMemory& error) { TORCH_CHECK_WITH(OutOfMemoryError, false, prefixed(error.what())); }

void throw_translated(const Status& status) {
  translated([&] { throw_status(status); });
  TORCH_INTERNAL_ASSERT(false, "throw_status returned");
}

void throw_device_out_of_range(int index, int count) {
  if (count == 0) TORCH_CHECK(false, prefix, "device index ", index, " is out of range: there is no device");
  if (count == 1) TORCH_CHECK(false, prefix, "device index ", index, " is out of range: the only device is 0");
  TORCH_CHECK(false, prefix, "device index ", index, " is out of range: there are ", count, " devices, 0 to ",
              count - 1);
}

}  // namespace mojo::torch_backend
