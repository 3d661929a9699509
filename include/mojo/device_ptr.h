// What it is: DevicePtr, an address in device memory, and Access, one range that queued work reads or writes.
//   A leaf of the public vocabulary: every layer, drivers included, may include this header.
// Ordering: an Access says what queued work touches; it orders nothing by itself.
// Threads: plain values. Errors: none.
#pragma once

#include <compare>
#include <cstdint>

namespace mojo {

// An address in device memory: a 64-bit value with byte-offset arithmetic, not something the host may
// dereference. (On a driver with Capability::host_accessible_memory, host *tasks* may.)
struct DevicePtr {
  std::uint64_t address = 0;

  explicit operator bool() const noexcept { return address != 0; }
  friend constexpr DevicePtr operator+(DevicePtr p, std::uint64_t bytes) noexcept { return {p.address + bytes}; }
  friend constexpr std::uint64_t operator-(DevicePtr a, DevicePtr b) noexcept { return a.address - b.address; }
  friend constexpr auto operator<=>(DevicePtr,
                                    DevicePtr) noexcept = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14

  // The value as the pointer that other libraries pass about. It is not dereferenceable on the host.
  void* opaque() const noexcept { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }
  static DevicePtr from_opaque(const void* p) noexcept { return {reinterpret_cast<std::uintptr_t>(p)}; }
};

enum class AccessMode : std::uint8_t { read = 1, write = 2, read_write = 3 };

// One range of device memory that queued work touches. Observers (the race checker, traces) read it; nothing
// is kept when nobody observes.
struct Access {
  DevicePtr ptr;
  std::uint64_t bytes = 0;
  AccessMode mode = AccessMode::read;
};

}  // namespace mojo
