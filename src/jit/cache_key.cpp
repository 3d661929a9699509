#include "jit/cache_key.h"

#include <string>

namespace mojo::jit {
namespace {

class Hasher {
 public:
  void number(std::uint64_t value) {
    std::byte bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
    sha_.update(bytes);
  }
  void text(std::string_view text) {
    number(text.size());
    sha_.update(text);
  }
  void texts(std::span<const std::string> texts) {
    number(texts.size());
    for (const std::string& each : texts) text(each);
  }
  Digest finish() { return sha_.finish(); }

 private:
  Sha256 sha_;
};

}  // namespace

Status make_key(driver::Compiler& compiler, const driver::CompileRequest& request, Digest& out) {
  std::string identity, target;
  MOJO_RETURN_IF_ERROR(compiler.identity(identity));
  MOJO_RETURN_IF_ERROR(compiler.target(target));
  Hasher hasher;
  hasher.number(cache_schema);
  hasher.text(request.source_name);
  hasher.text(request.source);
  hasher.number(request.headers.size());
  for (const driver::SourceHeader& header : request.headers) {
    hasher.text(header.name);
    hasher.text(header.text);
  }
  hasher.texts(request.options);
  hasher.texts(request.entries);
  hasher.text(target);
  hasher.text(identity);
  hasher.text(compiler.output_kind());
  out = hasher.finish();
  return {};
}

}  // namespace mojo::jit
