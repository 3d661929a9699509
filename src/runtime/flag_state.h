// What it is: FlagState, what a CompletionFlag owns: a 64-bit slot of a device that streams wait for.
// Ordering: none. Threads: any. Errors: none; the slot lives as long as the state.
#pragma once

#include <cstdint>

namespace mojo::detail {

class DeviceState;

class FlagState {
 public:
  DeviceState* device = nullptr;
  std::uint64_t* address = nullptr;
};

}  // namespace mojo::detail
