#include "jit/dialect.h"

namespace mojo::jit {
namespace {

constexpr driver::SourceHeader headers[] = {
#include "embedded/dialect.inc"
};

}  // namespace

std::span<const driver::SourceHeader> dialect_headers() noexcept { return headers; }

}  // namespace mojo::jit
