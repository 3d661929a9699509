// What it is: Philox 4x32-10 (Salmon et al., 2011), random numbers by counting: the same for the same seed, sequence and
//   position on every device, whatever grid and block are.
// Ordering: none. Threads: device code; a Philox is its thread's own. Errors: none.
#pragma once

#include "mojo/kernel/platform.h"
#include "mojo/kernel/vector.h"

namespace mojo {

// Four random words for a counter and a key, lowest word first.
MOJO_DEVICE Vector<uint32, 4> philox4x32(Vector<uint32, 4> counter, Vector<uint32, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64 a = uint64{0xd2511f53u} * counter[0], b = uint64{0xcd9e8d57u} * counter[2];
    counter = {{static_cast<uint32>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32>(b),
                static_cast<uint32>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32>(a)}};
    key[0] += 0x9e3779b9u;
    key[1] += 0xbb67ae85u;
  }
  return counter;
}

// 0 <= u < 1, of the word's upper 24 bits: each of 2^24 values as often as any other.
MOJO_DEVICE float uniform_float(uint32 word) { return static_cast<float>(word >> 8) * 5.9604644775390625e-8f; }

// The words of one sequence of a seed, four at a time. Sequences of one seed, one a thread for instance, do not overlap.
class Philox {
 public:
  // `position`: how many times four words to skip.
  MOJO_DEVICE explicit Philox(uint64 seed, uint64 sequence = 0, uint64 position = 0)
      : seed_(seed), sequence_(sequence), position_(position) {}

  MOJO_DEVICE Vector<uint32, 4> operator()() {
    const uint64 at = position_++;
    return mojo::philox4x32({{static_cast<uint32>(at), static_cast<uint32>(at >> 32), static_cast<uint32>(sequence_),
                              static_cast<uint32>(sequence_ >> 32)}},
                            {{static_cast<uint32>(seed_), static_cast<uint32>(seed_ >> 32)}});
  }
  // 0 <= u < 1.
  MOJO_DEVICE Vector<float, 4> uniform() {
    const Vector<uint32, 4> words = (*this)();
    return {{uniform_float(words[0]), uniform_float(words[1]), uniform_float(words[2]), uniform_float(words[3])}};
  }

 private:
  uint64 seed_, sequence_, position_;
};

}  // namespace mojo
