// Atomics, the fence, and random numbers of the dialect.
#include <array>
#include <cmath>
#include <numeric>

#include "kernels/dialect_fixture.h"

namespace mojo::kernels {
namespace {

TEST_F(Dialect, AtomicsTakeWhatConvertsToTheirType) {
  std::vector<float> floats(2);
  std::vector<double> doubles(1);
  std::vector<int> ints(6);
  std::vector<unsigned long long> longs(2);
  run(R"(
extern "C" MOJO_KERNEL void f(mojo::Buffer<float> x, mojo::Buffer<double> d, mojo::Buffer<int> i,
                              mojo::Buffer<unsigned long long> l) {
  mojo::atomic_add(&x[0], 1);
  mojo::atomic_max(&x[1], mojo::thread_index());
  mojo::atomic_add(&d[0], 1);
  mojo::atomic_add(&l[0], 1);
  mojo::atomic_min(&i[0], -1);
  mojo::atomic_store(&i[1], 5);
  const int* constant = &i[1];
  mojo::atomic_store(&i[2], mojo::atomic_load(constant) + 1);
  mojo::atomic_exchange(&i[3], 7);
  mojo::atomic_compare_exchange(&i[4], 0, 8);
  mojo::atomic_compare_exchange(&i[5], 1, 8);
  mojo::atomic_store(&l[1], 3);
})",
      {10}, {50}, view(floats), view(doubles), view(ints), view(longs));
  EXPECT_EQ(floats, (std::vector<float>{500, 49}));
  EXPECT_EQ(doubles[0], 500);
  EXPECT_EQ(ints, (std::vector<int>{-1, 5, 6, 7, 8, 0}));
  EXPECT_EQ(longs, (std::vector<unsigned long long>{500, 3}));
}

TEST_F(Dialect, AtomicsOfClassesOfAnyNamespace) {
  struct Pair {
    float a, b;
  };
  std::vector<Pair> pairs(2);
  run(R"(
namespace theirs {
struct Pair { float a, b; };
inline bool operator<(Pair x, Pair y) { return x.a < y.a; }
template <class T> T atomic_load(T*);
template <class T> T load_whole(const T*);
template <class To, class From> To bit_cast(const From&);
template <class T> T min(T, T);
}
namespace mojo { struct Own { float a, b; }; inline bool operator<(Own x, Own y) { return x.a < y.a; } }
extern "C" MOJO_KERNEL void f(mojo::Buffer<theirs::Pair> p, mojo::Buffer<theirs::Pair> q) {
  const float i = static_cast<float>(mojo::global_index());
  mojo::atomic_max(&p[0], {i, -i});
  mojo::atomic_max(reinterpret_cast<mojo::Own*>(&q[1]), mojo::Own{i, -i});
  mojo::clamp(theirs::Pair{}, theirs::Pair{}, theirs::Pair{});
})",
      {4}, {25}, view(pairs), view(pairs));
  for (const Pair& pair : pairs) {
    EXPECT_EQ(pair.a, 99);
    EXPECT_EQ(pair.b, -99);
  }
}

TEST_F(Dialect, AtomicsOfOtherSizesSayWhich) {
  for (const char* type : {"short", "mojo::half", "unsigned char"}) {
    jit::CompiledImagePtr image;
    const Status status = compile(
        "extern \"C\" MOJO_KERNEL void f(mojo::Buffer<" + std::string(type) + "> x) { mojo::atomic_add(&x[0], x[1]); }",
        image);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), testing::HasSubstr("atomic operations are for types of 4 and 8 bytes")) << type;
  }
}

// Each block leaves its sum, and the last one to come adds them up, in one launch.
TEST_F(Dialect, TheLastBlockSeesWhatTheOthersWroteBeforeTheirFence) {
  constexpr unsigned blocks = 500, threads = 8;
  std::vector<unsigned> sums(blocks), total(1), arrived(1);
  for (int round = 1; round <= 20; ++round) {
    run(R"(
extern "C" MOJO_KERNEL void f(mojo::Buffer<unsigned> sums, mojo::Buffer<unsigned> total, mojo::Buffer<unsigned> arrived,
                              unsigned round) {
  MOJO_SHARED bool last;
  const unsigned sum = mojo::block_sum(static_cast<unsigned>(mojo::global_index()) * round);
  if (mojo::thread_index() == 0) {
    sums[mojo::block_index()] = sum;
    mojo::fence();
    last = mojo::atomic_add(&arrived[0], 1) == mojo::block_count() - 1;
  }
  mojo::barrier();
  if (!last) return;
  mojo::fence();
  unsigned mine = 0;
  for (unsigned i = mojo::thread_index(); i < mojo::block_count(); i += mojo::block_size()) mine += sums[i];
  const unsigned all = mojo::block_sum(mine);
  if (mojo::thread_index() == 0) {
    total[0] = all;
    mojo::atomic_store(&arrived[0], 0);
  }
})",
        {blocks}, {threads}, view(sums), view(total), view(arrived), static_cast<unsigned>(round));
    constexpr unsigned n = blocks * threads;
    ASSERT_EQ(total[0], n * (n - 1) / 2 * static_cast<unsigned>(round));
    ASSERT_EQ(arrived[0], 0U);
  }
}

TEST_F(Dialect, PhiloxGivesTheKnownAnswers) {
  // Of Random123's kat_vectors: counter, key, answer.
  const std::vector<std::uint32_t> known{0,          0,          0,          0,          0,          0,
                                         0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8, 0xffffffff, 0xffffffff,
                                         0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e,
                                         0xa20bc7c6, 0x6d5451fd, 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344,
                                         0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  std::vector<std::uint32_t> vectors = known;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    if (i % 10 >= 6) vectors[i] = 0;
  }
  run(R"(
extern "C" MOJO_KERNEL void f(mojo::Buffer<unsigned> v) {
  unsigned* at = &v[10 * mojo::global_index()];
  const auto words = mojo::philox4x32({{at[0], at[1], at[2], at[3]}}, {{at[4], at[5]}});
  for (int i = 0; i < 4; ++i) at[6 + i] = words[i];
})",
      {3}, {1}, view(vectors));
  EXPECT_EQ(vectors, known);
}

TEST_F(Dialect, ASequenceOfRandomNumbersHasPositions) {
  constexpr std::size_t threads = 64, draws = 16;
  std::vector<std::uint32_t> words(threads * draws * 4), skipped(threads * 4);
  std::vector<float> uniform(threads * draws * 4);
  run(R"(
extern "C" MOJO_KERNEL void f(mojo::Buffer<unsigned> words, mojo::Buffer<float> uniform, mojo::Buffer<unsigned> skipped,
                              unsigned draws) {
  const auto me = mojo::global_index();
  mojo::Philox random(0x123456789abcdefull, me), again(0x123456789abcdefull, me);
  for (unsigned i = 0; i < draws; ++i) {
    const auto four = random();
    const auto u = again.uniform();
    for (int k = 0; k < 4; ++k) {
      words[(me * draws + i) * 4 + k] = four[k];
      uniform[(me * draws + i) * 4 + k] = u[k];
    }
  }
  mojo::Philox later(0x123456789abcdefull, me, draws - 1);
  const auto four = later();
  for (int k = 0; k < 4; ++k) skipped[me * 4 + k] = four[k];
})",
      {4}, {16}, view(words), view(uniform), view(skipped), static_cast<std::uint32_t>(draws));
  for (std::size_t i = 0; i < threads; ++i) {
    for (std::size_t k = 0; k < 4; ++k) ASSERT_EQ(skipped[i * 4 + k], words[(i * draws + draws - 1) * 4 + k]);
  }
  double sum = 0;
  for (std::size_t i = 0; i < words.size(); ++i) {
    ASSERT_EQ(uniform[i], static_cast<float>(words[i] >> 8) / 16777216.0F);
    sum += uniform[i];
  }
  EXPECT_NEAR(sum / static_cast<double>(uniform.size()), 0.5, 0.03);  // as it happens: the numbers are always the same
  std::ranges::sort(words);
  EXPECT_EQ(std::ranges::adjacent_find(words), words.end());  // likewise
}

}  // namespace
}  // namespace mojo::kernels
