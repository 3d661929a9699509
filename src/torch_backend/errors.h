// What it is: how failures of the runtime become torch's exceptions. translated(f) runs f and turns mojo::Error,
//   OutOfMemory and DeviceLost into c10 errors whose text starts with "mojo backend: ".
// Ordering: none. Threads: any.
// Errors: exceptions that queued work threw, c10 errors among them, pass through unchanged.
#pragma once

#include <string>
#include <utility>

#include "mojo/error.h"
#include "mojo/export.h"
#include "mojo/status.h"

namespace mojo::torch_backend {

// "mojo backend: " and the text, unless it starts so already.
std::string prefixed(const std::string& text);

[[noreturn]] MOJO_API void throw_translated(const Error& error);
[[noreturn]] MOJO_API void throw_translated(const OutOfMemory& error);
// Throws what `status`, a failure, stands for, translated.
[[noreturn]] MOJO_API void throw_translated(const Status& status);

// Called for a device index outside 0 .. count-1.
[[noreturn]] MOJO_API void throw_device_out_of_range(int index, int count);

template <class F>
decltype(auto) translated(F&& function) {
  try {
    return std::forward<F>(function)();
  } catch (const Error& error) {
    throw_translated(error);
  } catch (const OutOfMemory& error) {
    throw_translated(error);
  }
}

inline void check_status(const Status& status) {
  if (!status.ok()) throw_translated(status);
}

}  // namespace mojo::torch_backend
