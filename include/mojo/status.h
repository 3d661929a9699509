// What it is: Status, the result of an operation that may fail, and the codes it can carry. A leaf of the
//   public vocabulary: every layer, drivers included, may include this header.
// Ordering: none; a Status of queued work is kept on the stream and raised by the next synchronizing call.
// Threads: a Status is an immutable value; copies share their text and may be used from any thread.
// Errors: never throws, out of memory apart.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "mojo/export.h"

namespace mojo {

// What kind of failure it is. The text says what was attempted; the code says what a caller may do about it.
enum class StatusCode : std::uint8_t {
  ok,
  invalid_argument,     // the caller passed something unusable; nothing was changed
  out_of_range,         // an index or size beyond the valid range
  unsupported,          // this driver or device cannot do it
  failed_precondition,  // not now: not recorded, not completed, called from a host function, ...
  unavailable,          // no such driver, library or device on this machine
  out_of_memory,        // device or pinned memory is exhausted
  device_lost,          // the device is gone until the process ends
  forked,               // the process was forked after the device had been used
  shut_down,            // the process is exiting
  task_failed,          // work on a queue failed; cause() may hold the exception it threw
  internal,             // a fault of this library
};

// Lower-case name of a code, "out_of_memory" for instance; never null.
MOJO_API const char* status_code_name(StatusCode code) noexcept;

// Success, or a code with a message and, for queued work, the exception that caused it.
// Success is a null pointer: it costs no allocation and is free to move.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;  // success
  Status(StatusCode code, std::string message, std::exception_ptr cause = nullptr)
      : rep_(code == StatusCode::ok ? nullptr
                                    : std::make_shared<Rep>(Rep{code, std::move(message), std::move(cause)})) {}

  bool ok() const noexcept { return rep_ == nullptr; }
  explicit operator bool() const noexcept { return ok(); }
  StatusCode code() const noexcept { return rep_ ? rep_->code : StatusCode::ok; }
  // The text for a person; empty on success.
  const std::string& message() const noexcept {
    static const std::string empty;
    return rep_ ? rep_->message : empty;
  }
  // The exception that failed queued work threw, or null.
  std::exception_ptr cause() const noexcept { return rep_ ? rep_->cause : nullptr; }

 private:
  struct Rep {
    StatusCode code;
    std::string message;
    std::exception_ptr cause;
  };
  std::shared_ptr<const Rep> rep_;
};

}  // namespace mojo

// Leaves the enclosing function with the Status of `expression` unless it succeeded.
#define MOJO_RETURN_IF_ERROR(expression)                                                     \
  do {                                                                                       \
    if (::mojo::Status mojo_status_ = (expression); !mojo_status_.ok()) return mojo_status_; \
  } while (false)
