#include "jit/cache_file.h"

#include <algorithm>
#include <string_view>

#include "jit/cache_key.h"

namespace mojo::jit {
namespace {

constexpr std::string_view magic = "mojo-img";

// magic 8, schema 8, key 32, image length 8, log length 8; then image, log, and a digest of all that.
constexpr std::size_t header_bytes = 64, checksum_bytes = 32;

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}
void append(std::vector<std::byte>& to, std::string_view text) {
  append(to, std::as_bytes(std::span(text.data(), text.size())));
}
void append(std::vector<std::byte>& to, std::uint64_t value) {
  for (int i = 0; i < 8; ++i) to.push_back(static_cast<std::byte>(value >> (8 * i)));
}
std::uint64_t number_at(std::span<const std::byte> file, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i) value |= std::to_integer<std::uint64_t>(file[at + i]) << (8 * i);
  return value;
}

Digest digest_of(std::span<const std::byte> bytes) {
  Sha256 sha;
  sha.update(bytes);
  return sha.finish();
}

}  // namespace

std::vector<std::byte> encode_cache_file(const Digest& key, const CompiledImage& image) {
  std::vector<std::byte> file;
  file.reserve(header_bytes + image.bytes.size() + image.log.size() + checksum_bytes);
  append(file, magic);
  append(file, std::uint64_t{cache_schema});
  append(file, std::span<const std::byte>(key));
  append(file, std::uint64_t{image.bytes.size()});
  append(file, std::uint64_t{image.log.size()});
  append(file, std::span<const std::byte>(image.bytes));
  append(file, std::string_view(image.log));
  append(file, std::span<const std::byte>(digest_of(file)));
  return file;
}

bool decode_cache_file(const Digest& key, std::span<const std::byte> file, CompiledImage& out) {
  if (file.size() < header_bytes + checksum_bytes) return false;
  const auto content = file.first(file.size() - checksum_bytes);
  if (!std::ranges::equal(content.first(magic.size()), std::as_bytes(std::span(magic.data(), magic.size()))))
    return false;
  if (number_at(content, 8) != cache_schema) return false;
  if (!std::ranges::equal(content.subspan(16, key.size()), key)) return false;
  const std::uint64_t image_bytes = number_at(content, 48), log_bytes = number_at(content, 56);
  const std::uint64_t rest = content.size() - header_bytes;
  if (image_bytes > rest || log_bytes != rest - image_bytes) return false;
  if (!std::ranges::equal(digest_of(content), file.last(checksum_bytes))) return false;

  const auto image = content.subspan(header_bytes, image_bytes);
  const auto log = content.subspan(header_bytes + image_bytes);
  out.bytes.assign(image.begin(), image.end());
  out.log.assign(reinterpret_cast<const char*>(log.data()), log.size());
  return true;
}

}  // namespace mojo::jit
