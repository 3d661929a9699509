// What the dialect's headers compute, on the host device.
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/dialect_fixture.h"
#include "mojo/float16.h"

namespace mojo::kernels {
namespace {

double value_of_half(std::uint16_t bits) {
  const double sign = bits & 0x8000 ? -1 : 1;
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return fraction != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

double value_of_bfloat16(std::uint16_t bits) {
  float value;
  const std::uint32_t word = std::uint32_t{bits} << 16;
  std::memcpy(&value, &word, 4);
  return value;
}

// The nearest representable value, of two equally near the one whose last bit is zero; `infinity` counts as the value
// that would follow the largest finite one.
std::uint16_t nearest(double value, double (*of)(std::uint16_t), std::uint16_t infinity, double beyond) {
  const auto magnitude = [&](std::uint16_t bits) { return bits == infinity ? beyond : of(bits); };
  const double wanted = std::fabs(value);
  std::uint16_t low = 0, high = infinity;
  while (high - low > 1) {
    const auto middle = static_cast<std::uint16_t>((low + high) / 2);
    (magnitude(middle) <= wanted ? low : high) = middle;
  }
  const double down = wanted - magnitude(low), up = magnitude(high) - wanted;
  const std::uint16_t best = down < up || (down == up && low % 2 == 0) ? low : high;
  return static_cast<std::uint16_t>(best | (std::signbit(value) ? 0x8000 : 0));
}

TEST_F(Dialect, HalfAndBfloat16RoundToNearestEven) {
  std::vector<float> values{0.0f,          -0.0f,         1.0f,     65504.0f,      65519.0f,
                            65519.996f,    65520.0f,      1e30f,    -1e30f,        6e-8f,
                            2.9802322e-8f, 2.9802326e-8f, 1e-30f,   6.1035156e-5f, 6.097555e-5f,
                            3.3895314e38f, 3.4e38f,       INFINITY, -INFINITY};
  std::uint32_t state = 12345;
  for (int i = 0; i < 200000; ++i) {
    state = state * 1664525u + 1013904223u;
    std::uint32_t bits = state;
    if (i % 3 == 0) bits = (bits & 0x807fffffu) | (103u + (state >> 9) % 45u) << 23;  // where halves are
    if (i % 5 == 0) bits = (bits & 0xfffff000u) | 0x1000u;                            // half-way
    float value;
    std::memcpy(&value, &bits, 4);
    if (value == value) values.push_back(value);
  }
  std::vector<std::uint16_t> halves(values.size()), brains(values.size());
  run(R"(
extern "C" MOJO_KERNEL void f(mojo::Buffer<const float> x, mojo::Buffer<mojo::half> h, mojo::Buffer<mojo::bfloat16> b) {
  for (auto i : mojo::stride(x.size())) {
    h[i] = x[i];
    b[i] = x[i];
  }
})",
      {7}, {64}, view(values), view(halves), view(brains));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    if (std::isinf(value)) {
      ASSERT_EQ(value_of_half(halves[i]), value);
      ASSERT_EQ(value_of_bfloat16(brains[i]), value);
      continue;
    }
    ASSERT_EQ(halves[i], nearest(value, value_of_half, 0x7c00, 65536)) << value;
    ASSERT_EQ(brains[i], nearest(value, value_of_bfloat16, 0x7f80, std::ldexp(1.0, 128))) << value;
    // The host's types of that name are the same.
    ASSERT_EQ(halves[i], half(values[i]).bits) << value;
    ASSERT_EQ(brains[i], bfloat16(values[i]).bits) << value;
  }
}

TEST_F(Dialect, EveryHalfAndBfloat16ComesBack) {
  std::vector<std::uint16_t> all(65536), halves(65536), brains(65536);
  std::iota(all.begin(), all.end(), std::uint16_t{0});
  std::vector<float> half_values(65536);
  run(R"(
extern "C" MOJO_KERNEL void f(mojo::Buffer<const mojo::half> h, mojo::Buffer<const mojo::bfloat16> b,
                              mojo::Buffer<mojo::half> h2, mojo::Buffer<mojo::bfloat16> b2, mojo::Buffer<float> values) {
  for (auto i : mojo::stride(h.size())) {
    const float x = h[i], y = b[i];
    values[i] = x;
    h2[i] = x;
    b2[i] = y;
  }
})",
      {16}, {128}, view(all), view(all), view(halves), view(brains), view(half_values));
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto b = static_cast<std::uint16_t>(bits);
    const double expected = value_of_half(b);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(half_values[bits]));
      ASSERT_TRUE(std::isnan(value_of_half(halves[bits])));
    } else {
      ASSERT_EQ(half_values[bits], expected);
      half host;
      host.bits = b;
      ASSERT_EQ(static_cast<float>(host), expected);
      ASSERT_EQ(halves[bits], b);
    }
    if (std::isnan(value_of_bfloat16(b))) {
      ASSERT_TRUE(std::isnan(value_of_bfloat16(brains[bits])));
    } else {
      ASSERT_EQ(brains[bits], b);
    }
  }
}

TEST_F(Dialect, MathematicsIsThatOfTheLibrary) {
  std::vector<float> out(12);
  std::vector<double> wide(6);
  run(R"(
extern "C" MOJO_KERNEL void f(mojo::Buffer<float> o, mojo::Buffer<double> w, float a, double b) {
  o[0] = mojo::sqrt(a); o[1] = mojo::exp(a); o[2] = mojo::log(a); o[3] = mojo::sin(a); o[4] = mojo::tanh(a);
  o[5] = mojo::pow(a, 1.5f); o[6] = mojo::fma(a, a, -1.0f); o[7] = mojo::min(a, 0.5f); o[8] = mojo::max(a, 0.5f);
  o[9] = mojo::clamp(-a, -1.0f, 1.0f); o[10] = mojo::abs(-a); o[11] = mojo::isnan(a - a) || mojo::isinf(a);
  w[0] = mojo::erf(b); w[1] = mojo::log1p(b); w[2] = mojo::floor(b); w[3] = mojo::atan2(b, 2.0);
  w[4] = mojo::rsqrt(b); w[5] = mojo::isinf(b / 0.0);
})",
      {1}, {1}, view(out), view(wide), 2.25f, 1.75);
  const float a = 2.25f;
  const double b = 1.75;
  const std::vector<float> expected{1.5f,    std::exp(a), std::log(a), std::sin(a), std::tanh(a), std::pow(a, 1.5f),
                                    4.0625f, 0.5f,        2.25f,       -1.0f,       2.25f,        0.0f};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_FLOAT_EQ(out[i], expected[i]) << i;
  const std::vector<double> expected_wide{std::erf(b), std::log1p(b), 1.0, std::atan2(b, 2.0), 1 / std::sqrt(b), 1.0};
  for (std::size_t i = 0; i < expected_wide.size(); ++i) EXPECT_DOUBLE_EQ(wide[i], expected_wide[i]) << i;
}

TEST_F(Dialect, VectorsLoadAndStoreNeighbours) {
  std::vector<float> from(64), to(64);
  std::iota(from.begin(), from.end(), 0.0f);
  run(R"(
extern "C" MOJO_KERNEL void f(mojo::Buffer<const float> x, mojo::Buffer<float> y) {
  const auto i = 4 * mojo::global_index();
  auto v = mojo::load<4>(&x[i]);
  for (int k = 0; k < 4; ++k) v[k] = v[k] * 2.0f + static_cast<float>(k);
  mojo::store(&y[i], v);
})",
      {2}, {8}, view(from), view(to));
  for (int i = 0; i < 64; ++i)
    ASSERT_EQ(to[static_cast<std::size_t>(i)], 2.0f * static_cast<float>(i) + static_cast<float>(i % 4));
}

// An index beyond 2^30 takes another path than one below.
TEST_F(Dialect, IndicesAreRightWhereTheLoopChanges) {
  std::vector<std::uint64_t> seen(3);
  run(R"(
extern "C" MOJO_KERNEL void f(mojo::Buffer<unsigned long long> seen) {
  const auto i = mojo::global_index();
  if (i == mojo::global_size() - 1) seen[0] = i;
  if (mojo::block_index() == (1u << 20) && mojo::thread_index() == 5) seen[1] = i;
  if (i == (1ull << 30) - 1) seen[2] = mojo::block_index() * 1024ull + mojo::thread_index();
})",
      {(1u << 20) + 2}, {1024}, view(seen));
  EXPECT_EQ(seen[0], (1ull << 30) + 2047);
  EXPECT_EQ(seen[1], (1ull << 30) + 5);
  EXPECT_EQ(seen[2], (1ull << 30) - 1);
}

}  // namespace
}  // namespace mojo::kernels
