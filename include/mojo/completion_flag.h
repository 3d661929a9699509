// What it is: CompletionFlag, a 64-bit value that a stream waits for and a host thread signals.
// Ordering: DeviceStream::wait_for_host_value(flag, v) holds the stream until the value equals v.
// Threads: signal may be called from any thread, host tasks included; nothing blocks.
// Errors: throws mojo::Error where the driver cannot wait for values. Destroying a flag in use releases the waiting
//   streams with an error kept on each.
#pragma once

#include <cstdint>
#include <utility>

#include "mojo/device_context.h"
#include "mojo/export.h"

namespace mojo {

namespace detail {
class FlagState;
}

class MOJO_API CompletionFlag {
 public:
  explicit CompletionFlag(const DeviceContext& context);  // the value is 0
  CompletionFlag(CompletionFlag&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  CompletionFlag& operator=(CompletionFlag&& other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~CompletionFlag();

  void signal(std::uint64_t value) const;
  std::uint64_t value() const noexcept;

 private:
  friend class DeviceStream;
  detail::FlagState* state_;
};

}  // namespace mojo
