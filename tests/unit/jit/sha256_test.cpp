#include "jit/sha256.h"

#include <gtest/gtest.h>

namespace mojo::jit {
namespace {

std::string digest_of(std::string_view text) {
  Sha256 sha;
  sha.update(text);
  return hex(sha.finish());
}

TEST(Sha256, TheStandardsExamples) {
  EXPECT_EQ(digest_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesOfAnySizeGiveTheSame) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 7);
  for (std::size_t length = 0; length <= text.size(); ++length) {
    const std::string whole = digest_of(std::string_view(text).substr(0, length));
    for (std::size_t step : {1u, 3u, 63u, 64u, 65u}) {
      Sha256 sha;
      for (std::size_t at = 0; at < length; at += step)
        sha.update(std::string_view(text).substr(at, std::min(step, length - at)));
      ASSERT_EQ(hex(sha.finish()), whole) << length << ' ' << step;
    }
  }
}

}  // namespace
}  // namespace mojo::jit
