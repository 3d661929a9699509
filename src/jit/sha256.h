// What it is: SHA-256 (FIPS 180-4), fed piece by piece.
// Ordering: none. Threads: an object is one thread's. Errors: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mojo::jit {

using Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes) noexcept;
  void update(std::string_view text) noexcept { update(std::as_bytes(std::span(text.data(), text.size()))); }
  Digest finish() noexcept;  // once

 private:
  void block(const std::byte* bytes) noexcept;

  std::array<std::uint32_t, 8> state_{0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                                      0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
  std::array<std::byte, 64> pending_{};
  std::uint64_t total_ = 0;
};

std::string hex(const Digest& digest);

}  // namespace mojo::jit
