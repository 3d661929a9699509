// Compiled functions through the C++ API: what arrives, and what is refused.
#include <array>
#include <limits>

#include "support/host_fixture.h"
#include "support/refusal.h"

namespace mojo::test {
namespace {

constexpr const char* source = R"(
extern "C" MOJO_KERNEL void scale(mojo::Buffer<const float> x, mojo::Buffer<float> y, float a, unsigned n) {
  for (unsigned i = mojo::global_index(); i < n; i += mojo::global_size()) y[i] = a * x[i];
}
extern "C" MOJO_KERNEL void sizes(mojo::Buffer<unsigned long> out, mojo::Buffer<const float> x, mojo::Buffer<const char> c) {
  if (mojo::global_index() == 0) {
    out[0] = x.size();
    out[1] = c.size();
  }
}
struct Pair {
  int a;
  double b;
};
extern "C" MOJO_KERNEL void scalars(mojo::Buffer<double> out, char a, short b, long c, double d, Pair p) {
  if (mojo::global_index() == 0) {
    out[0] = a;
    out[1] = b;
    out[2] = double(c);
    out[3] = d;
    out[4] = p.a + p.b;
  }
}
extern "C" MOJO_KERNEL void nothing() {}
)";
using Scale = void(Buffer<const float>, Buffer<float>, float, std::uint32_t);

using Functions = HostRuntime;

TEST_F(Functions, OwnersAndViewsArePassedWhereABufferIsAskedFor) {  // D-03
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const auto scale = ctx.compile_function<Scale>(source, "scale");
  auto x = ctx.allocate<float>(8, s), y = ctx.allocate<float>(8, s);
  const DeviceBuffer<float>& constant = x;
  std::vector<float> back(8);
  s.fill(x, 1.0F);
  const auto launch = [&](auto&& from, auto&& to) {
    s.fill(y, 0.0F);
    s.enqueue_function(scale, {.grid = {1}, .block = {8}}, from, to, 3.0F, std::uint32_t{4});
    s.copy(back, y);
  };
  launch(x, y);
  EXPECT_EQ(back, (std::vector{3.0F, 3.0F, 3.0F, 3.0F, 0.0F, 0.0F, 0.0F, 0.0F}));
  launch(constant, y.part(4, 4));
  EXPECT_EQ(back, (std::vector{0.0F, 0.0F, 0.0F, 0.0F, 3.0F, 3.0F, 3.0F, 3.0F}));
  launch(x.view(), y.view());
  EXPECT_EQ(back[3], 3.0F);
  launch(constant.view(), y);
  EXPECT_EQ(back[3], 3.0F);
}

TEST_F(Functions, SizesAndScalarsArriveAsTheyAre) {  // D-03
  struct Pair {
    int a;
    double b;
  };
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const auto sizes =
      ctx.compile_function<void(Buffer<std::uint64_t>, Buffer<const float>, Buffer<const char>)>(source, "sizes");
  auto counts = ctx.allocate<std::uint64_t>(2, s);
  s.enqueue_function(sizes, {.grid = {1}, .block = {1}}, counts, ctx.allocate<float>(7, s), Buffer<const char>());
  std::array<std::uint64_t, 2> read{};
  s.copy(read, counts);
  EXPECT_EQ(read, (std::array<std::uint64_t, 2>{7, 0}));

  const auto scalars =
      ctx.compile_function<void(Buffer<double>, char, std::int16_t, std::int64_t, double, Pair)>(source, "scalars");
  auto out = ctx.allocate<double>(5, s);
  s.enqueue_function(scalars, {.grid = {1}, .block = {1}}, out, 'a', std::int16_t{-2}, 1 << 30, 2.5F, Pair{1, 0.5});
  std::vector<double> values(5);
  s.copy(values, out);
  EXPECT_EQ(values, (std::vector{97.0, -2.0, double{1 << 30}, 2.5, 1.5}));
}

TEST_F(Functions, AFunctionMayGoWhileItsLaunchIsQueued) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  auto x = ctx.allocate<float>(8, s);
  s.fill(x, 2.0F);
  Gate gate(s);
  {
    const auto scale = ctx.compile_function<Scale>(source, "scale");
    s.enqueue_function(scale, {.grid = {1}, .block = {8}}, x, x, 2.0F, 8U);
  }
  gate.open();
  std::vector<float> back(8);
  s.copy(back, x);
  EXPECT_EQ(back, std::vector<float>(8, 4.0F));
}

TEST_F(Functions, SourcesThatAreNoGood) {
  const DeviceContext ctx(0);
  auto text = refusal_of(
      [&] {
        static_cast<void>(ctx.compile_function<void(float)>(
            "extern \"C\" MOJO_KERNEL void f(float a) {\n\n  undeclared_name = a;\n}\n", "f"));
      },
      StatusCode::invalid_argument);
  EXPECT_TRUE(mentions(text, "undeclared_name")) << text;
  EXPECT_TRUE(mentions(text, ":3:")) << text;  // the line of the user's source
  text = refusal_of([&] { static_cast<void>(ctx.compile_function<void()>(source, "no_such_name")); },
                    StatusCode::invalid_argument);
  EXPECT_TRUE(mentions(text, "no_such_name")) << text;
  refusal_of([&] { static_cast<void>(ctx.compile_function<void()>(source, "")); }, StatusCode::invalid_argument);
  refusal_of([&] { static_cast<void>(ctx.compile_function<void()>("", "f")); }, StatusCode::invalid_argument);
}

TEST_F(Functions, LaunchesThatAreRefused) {
  const DeviceContext ctx(0), other(1);
  const DeviceStream s = ctx.create_stream();
  const auto scale = ctx.compile_function<Scale>(source, "scale");
  const auto elsewhere = other.compile_function<Scale>(source, "scale");
  auto x = ctx.allocate<float>(8, s);
  auto y = other.allocate<float>(8, other.stream());
  const auto with = [&](const LaunchConfig& config) {
    return refusal_of([&] { s.enqueue_function(scale, config, x, x, 1.0F, 8U); }, StatusCode::invalid_argument);
  };
  const auto launch = [&](const DeviceFunction<Scale>& f, auto&& a) {
    return refusal_of([&] { s.enqueue_function(f, {.grid = {1}, .block = {1}}, a, x, 1.0F, 8U); },
                      StatusCode::invalid_argument);
  };
  auto text = launch(DeviceFunction<Scale>(), x);
  EXPECT_TRUE(mentions(text, "the function is null")) << text;
  text = launch(elsewhere, x);
  EXPECT_TRUE(mentions(text, "compiled for device 1")) << text;
  text = launch(scale, y);
  EXPECT_TRUE(mentions(text, "a buffer of device 1 on a stream of device 0")) << text;

  const auto largest = std::numeric_limits<std::uint64_t>::max();
  for (const LaunchConfig& config : std::vector<LaunchConfig>{{.grid = {0}, .block = {1}},
                                                              {.grid = {1}, .block = {0}},
                                                              {.grid = {1, 0}, .block = {1}},
                                                              {.grid = {1}, .block = {1, 1, 0}},
                                                              {.grid = {-1}, .block = {1}},
                                                              {.grid = {largest}, .block = {1}},
                                                              {.grid = {1, 65536}, .block = {1}},
                                                              {.grid = {1}, .block = {1025}},
                                                              {.grid = {1}, .block = {1024, 2}},
                                                              {.grid = {1}, .block = {1, 1, 65}}}) {
    EXPECT_TRUE(mentions(with(config), "launch"));
  }
  text = with({.grid = {1}, .block = {1}, .shared_memory_bytes = 1U << 30});
  EXPECT_TRUE(mentions(text, "shared memory")) << text;

  // What the driver lacks is an error only where it is asked for, and names driver and call.
  const std::array attributes{LaunchAttribute{1, 1}};
  const std::array<std::byte, 4> bytes{};
  const std::array constants{ConstantMemoryMapping{"table", bytes}};
  for (const LaunchConfig& config :
       std::vector<LaunchConfig>{{.grid = {2}, .block = {1}, .cluster = Dim{2}},
                                 {.grid = {1}, .block = {1}, .attributes = attributes},
                                 {.grid = {1}, .block = {1}, .constant_memory = constants}}) {
    text = refusal_of([&] { s.enqueue_function(scale, config, x, x, 1.0F, 8U); }, StatusCode::unsupported);
    EXPECT_TRUE(mentions(text, "host driver")) << text;
    EXPECT_TRUE(mentions(text, "launch")) << text;
  }
  s.enqueue_function(scale, {.grid = {1}, .block = {1}, .cluster = Dim{1}}, x, x, 1.0F, 8U);
  s.synchronize();
  EXPECT_EQ(s.position(), 1U);  // what was refused took no place in the queue
}

TEST_F(Functions, ASignatureThatIsNotTheSourcesIsRefused) {  // D-03
  const DeviceContext ctx(0);
  const auto says = [](auto&& compile, const char* what) {
    const std::string text = refusal_of([&] { static_cast<void>(compile()); }, StatusCode::invalid_argument);
    EXPECT_TRUE(mentions(text, what)) << text;
  };
  using In = Buffer<const float>;
  using Out = Buffer<float>;
  const std::string_view text = source;
  says([&] { return ctx.compile_function<void(float)>(text, "scale"); },
       "'scale' takes 4 parameters in the source and 1 in the signature");
  says([&] { return ctx.compile_function<void(In, Out, std::uint32_t, std::uint32_t)>(text, "scale"); },
       "parameter 2 (the first is 0) than the signature: float in the source, uint32 in the signature");
  says([&] { return ctx.compile_function<void(In, Out, float, std::int32_t)>(text, "scale"); },
       "uint32 in the source, int32 in the signature");
  says([&] { return ctx.compile_function<void(In, Out, double, std::uint32_t)>(text, "scale"); },
       "float in the source, double in the signature");
  says([&] { return ctx.compile_function<void(In, In, float, std::uint32_t)>(text, "scale"); },
       "Buffer<float> in the source, Buffer<const float> in the signature");
  says([&] { return ctx.compile_function<void(Out, Out, float, std::uint32_t)>(text, "scale"); },
       "parameter 0 (the first is 0) than the signature: Buffer<const float> in the source, Buffer<float>");
  says([&] { return ctx.compile_function<void(In, Buffer<std::int32_t>, float, std::uint32_t)>(text, "scale"); },
       "Buffer<float> in the source, Buffer<int32> in the signature");
  says([&] { return ctx.compile_function<void(In, Buffer<half>, float, std::uint32_t)>(text, "scale"); },
       "Buffer<half> in the signature");
  struct Four {
    char bytes[4];
  };
  says([&] { return ctx.compile_function<void(In, Out, Four, std::uint32_t)>(text, "scale"); },
       "float in the source, a class of 4 bytes in the signature");
  static_cast<void>(ctx.compile_function<Scale>(text, "scale"));
}

TEST_F(Functions, ABufferOfPointersIsOneOfAddresses) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const std::string text = R"(
extern "C" MOJO_KERNEL void first(mojo::Buffer<const float*> rows, mojo::Buffer<float> out) { out[0] = rows[1][2]; }
)";
  const auto numbers = ctx.compile_function<void(Buffer<std::uint64_t>, Buffer<float>)>(text, "first");
  const auto pointers = ctx.compile_function<void(Buffer<DevicePtr>, Buffer<float>)>(text, "first");
  static_cast<void>(ctx.compile_function<void(Buffer<const float*>, Buffer<float>)>(text, "first"));
  EXPECT_THROW(static_cast<void>(ctx.compile_function<void(Buffer<float>, Buffer<float>)>(text, "first")), Error);
  auto data = ctx.allocate<float>(4, s);
  s.fill(data, 7.0F);
  auto rows = ctx.allocate<DevicePtr>(2, s);
  const std::vector<DevicePtr> addresses(2, data.data());
  s.copy(rows, addresses);
  auto out = ctx.allocate<float>(1, s);
  s.enqueue_function(pointers, {}, rows, out);
  std::vector<float> back(1);
  s.copy(back, out);
  EXPECT_EQ(back[0], 7.0F);
}

enum class Color : std::int16_t { red = 3 };

TEST_F(Functions, EveryKindOfParameterIsKnownOnBothSides) {  // D-03
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const std::string all = R"(
enum class Color : short { red = 3 };
struct Pair { int a; double b; };
extern "C" MOJO_KERNEL void all(mojo::Buffer<double> out, bool a, char b, signed char c, unsigned char d, short e,
                                unsigned short f, int g, unsigned h, long i, unsigned long j, long long k,
                                unsigned long long l, float m, double n, mojo::half o, mojo::bfloat16 p, Color q,
                                Pair r, double* address, mojo::Buffer<mojo::half> halves,
                                mojo::Buffer<const mojo::bfloat16> brains, mojo::Buffer<const Pair> pairs) {
  const double values[] = {double(a), double(b), double(c), double(d), double(e), double(f), double(g), double(h),
                           double(i), double(j), double(k), double(l), m, n, float(o), float(p), double(q), r.b,
                           double(address == &out[0]), double(halves.size()), float(brains[0]), double(pairs[0].a)};
  for (unsigned at = 0; at < sizeof values / sizeof values[0]; ++at) out[at] = values[at];
  halves[0] = 0.5f;
}
)";
  struct Pair {
    int a;
    double b;
  };
  const auto f = ctx.compile_function<void(Buffer<double>, bool, char, signed char, unsigned char, std::int16_t,
                                           std::uint16_t, std::int32_t, std::uint32_t, long, unsigned long, long long,
                                           unsigned long long, float, double, half, bfloat16, Color, Pair, DevicePtr,
                                           Buffer<half>, Buffer<const bfloat16>, Buffer<const Pair>)>(all, "all");
  auto out = ctx.allocate<double>(22, s);
  auto halves = ctx.allocate<half>(3, s);
  auto brains = ctx.allocate<bfloat16>(1, s);
  auto pairs = ctx.allocate<Pair>(1, s);
  s.fill(brains, bfloat16(-2.0F));
  s.copy(pairs, std::vector<Pair>{{21, 0}});
  s.enqueue_function(f, {.grid = {1}, .block = {1}}, out, true, 'b', static_cast<signed char>(-3),
                     static_cast<unsigned char>(200), std::int16_t{-5}, std::uint16_t{60000}, -7, 8U, -9L, 10UL, -11LL,
                     12ULL, 13.5F, 14.5, half(15.5F), bfloat16(16.0F), Color::red, Pair{0, 17.5}, out.data(), halves,
                     brains, pairs);
  std::vector<double> values(22);
  s.copy(values, out);
  EXPECT_EQ(values, (std::vector<double>{1,  98,   -3,   200,  -5, 60000, -7,   8, -9, 10, -11,
                                         12, 13.5, 14.5, 15.5, 16, 3,     17.5, 1, 3,  -2, 21}));
  std::vector<half> back(3);
  s.copy(back, halves);
  EXPECT_EQ(static_cast<float>(back[0]), 0.5F);
}

TEST_F(Functions, ArgumentsBeyondTheLimitAreRefusedAtTheLaunch) {
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  struct Large {
    char bytes[5000];
  };
  const auto large = ctx.compile_function<void(Large)>(
      "struct Large { char bytes[5000]; };\nextern \"C\" MOJO_KERNEL void f(Large x) { (void)x; }\n", "f");
  const auto text = refusal_of([&] { s.enqueue_function(large, {.grid = {1}, .block = {1}}, Large{}); },
                               StatusCode::invalid_argument);
  EXPECT_TRUE(mentions(text, "4096")) << text;
}

TEST_F(Functions, TheUntypedLaunchReturnsAMessage) {  // D-04
  const DeviceContext ctx(0);
  const DeviceStream s = ctx.create_stream();
  const UntypedFunction scale = ctx.compile_untyped_function(source, "scale");
  auto x = ctx.allocate<float>(8, s);
  s.fill(x, 1.0F);
  const std::array<std::uint64_t, 2> buffer{x.data().address, 8};
  const float a = 2.0F;
  const std::uint32_t n = 8;
  std::array<const void*, 4> arguments{&buffer, &buffer, &a, &n};
  std::array<std::uint32_t, 4> sizes{16, 16, 4, 4};
  const Access access{x.data(), 32, AccessMode::read_write};
  const LaunchConfig config{.grid = {1}, .block = {8}};
  EXPECT_EQ(s.enqueue(scale, config, arguments, sizes, {&access, 1}), std::nullopt);
  std::vector<float> back(8);
  s.copy(back, x);
  EXPECT_EQ(back, std::vector<float>(8, 2.0F));

  const auto message = [&](const std::optional<std::string>& text, const char* part) {
    ASSERT_TRUE(text.has_value()) << part;
    EXPECT_TRUE(mentions(*text, part)) << *text;
  };
  message(s.enqueue(UntypedFunction(), config, arguments, sizes), "the function is null");
  message(s.enqueue(scale, config, arguments, std::span(sizes).first(3)), "4 arguments and 3 sizes");
  message(s.enqueue(scale, config, std::span(arguments).first(3), std::span(sizes).first(3)), "argument");
  sizes[2] = 8;
  message(s.enqueue(scale, config, arguments, sizes), "argument");
  sizes[2] = 4;
  arguments[1] = nullptr;
  message(s.enqueue(scale, config, arguments, sizes), "argument 1 is null");
  arguments[1] = &buffer;
  message(s.enqueue(scale, {.grid = {0}, .block = {8}}, arguments, sizes), "grid");
}

TEST(CheckedFunctions, ABufferThatIsUsedAfterItWasFreedIsFound) {
  base::Settings settings;
  settings.check_driver = true;
  start_runtime({}, settings);
  {
    const DeviceContext ctx(0);
    const DeviceStream s = ctx.create_stream();
    const auto scale = ctx.compile_function<Scale>(source, "scale");
    auto x = ctx.allocate<float>(8, s), y = ctx.allocate<float>(8, s);
    const Buffer<float> stale = x.view();
    s.enqueue_function(scale, {.grid = {1}, .block = {1}}, stale, y, 1.0F, 8U);
    x = {};
    const auto text = refusal_of([&] { s.enqueue_function(scale, {.grid = {1}, .block = {1}}, stale, y, 1.0F, 8U); },
                                 StatusCode::invalid_argument);
    EXPECT_TRUE(mentions(text, "used after it was freed")) << text;
    const Access access{stale.data(), 32, AccessMode::read};
    const auto message = s.enqueue(scale, {}, {}, {}, {&access, 1});
    ASSERT_TRUE(message.has_value());
    EXPECT_TRUE(mentions(*message, "used after it was freed")) << *message;
    s.synchronize();
  }
  runtime::Registry::instance().reset_for_test(nullptr);
}

}  // namespace
}  // namespace mojo::test
