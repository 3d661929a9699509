// What it is: the exceptions of the public API, and how a Status becomes one.
// Ordering: none. Threads: plain values.
// Errors: a failure of queued work that carries an exception (Status::cause) is rethrown as that exception.
#pragma once

#include <new>
#include <stdexcept>

#include "mojo/export.h"
#include "mojo/status.h"

namespace mojo {

class MOJO_API Error : public std::runtime_error {
 public:
  explicit Error(Status status) : std::runtime_error(status.message()), status_(std::move(status)) {}
  ~Error() override;
  StatusCode code() const noexcept { return status_.code(); }
  const Status& status() const noexcept { return status_; }

 private:
  Status status_;
};

// The device is gone until the process ends; so are its streams, events and memory.
class MOJO_API DeviceLost : public Error {
 public:
  using Error::Error;
  ~DeviceLost() override;
};

// Device or pinned memory is exhausted. The state is intact: the next allocation that fits succeeds.
class MOJO_API OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(Status status) : status_(std::move(status)) {}
  ~OutOfMemory() override;
  const char* what() const noexcept override { return status_.message().c_str(); }
  const Status& status() const noexcept { return status_; }

 private:
  Status status_;
};

// Throws what `status`, a failure, stands for: its cause if it has one, else OutOfMemory, DeviceLost or Error.
[[noreturn]] MOJO_API void throw_status(const Status& status);

inline void throw_if_failed(const Status& status) {
  if (!status.ok()) throw_status(status);
}

}  // namespace mojo
