// What it is: LaunchConfig, how a device function is launched: how many blocks of how many threads, and what else.
// Ordering: none. Threads: plain values; the spans are read during the call alone.
// Errors: none here. The launch refuses a grid or block of zero or beyond the device's limits, and what its driver lacks
//   (clusters, attributes or constant memory on the host device), naming the driver and the call.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

namespace mojo {

// A count in three dimensions, made from any integers: {blocks}, {16, 16}. What no 32-bit count can hold becomes the nearest
// that it can, 0 for a negative one, which the launch then refuses.
struct Dim {
  std::uint32_t x = 1, y = 1, z = 1;

  constexpr Dim() noexcept = default;
  template <std::integral X, std::integral Y = int, std::integral Z = int>
  constexpr Dim(X in_x, Y in_y = 1, Z in_z = 1) noexcept  // NOLINT(google-explicit-constructor): a number is a count
      : x(clamp(in_x)), y(clamp(in_y)), z(clamp(in_z)) {}
  friend constexpr bool operator==(const Dim&, const Dim&) noexcept = default;

 private:
  template <class Integer>
  static constexpr std::uint32_t clamp(Integer count) noexcept {
    if (std::is_signed_v<Integer> && count < Integer{0}) return 0;
    constexpr std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
    return static_cast<std::uint64_t>(count) > most ? most : static_cast<std::uint32_t>(count);
  }
};

// A launch attribute by the number that the driver's vendor gives it.
struct LaunchAttribute {
  std::uint32_t id = 0;
  std::uint64_t value = 0;
};

// Bytes that the function's constant of that name holds from this launch on; copied at the call.
struct ConstantMemoryMapping {
  std::string_view name;
  std::span<const std::byte> bytes;
};

struct LaunchConfig {
  Dim grid{};   // blocks
  Dim block{};  // threads of each
  std::optional<Dim> cluster = std::nullopt;
  std::uint32_t shared_memory_bytes = 0;  // of each block, besides what the function declares
  std::span<const LaunchAttribute> attributes = {};
  std::span<const ConstantMemoryMapping> constant_memory = {};
};

}  // namespace mojo
