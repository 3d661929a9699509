// What it is: the bytes of one file of the cache: magic, schema, the key again, lengths, image, log, checksum.
// Ordering: none. Threads: any. Errors: `decode` says false to anything that `encode` did not write for this key.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "jit/compile_cache.h"
#include "jit/sha256.h"

namespace mojo::jit {

std::vector<std::byte> encode_cache_file(const Digest& key, const CompiledImage& image);
bool decode_cache_file(const Digest& key, std::span<const std::byte> file, CompiledImage& out);

}  // namespace mojo::jit
