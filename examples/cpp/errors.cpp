// What goes wrong, and how a program is told.
//
// A call that cannot be done throws at once and changes nothing. Work that fails later, on its stream, throws from the next
// call that waits for that stream, once; later work of the stream runs. Running out of memory is std::bad_alloc.
#include <mojo/mojo.h>

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <vector>

int main() {
  int seen = 0;
  const mojo::DeviceContext ctx(0);
  const mojo::DeviceStream stream = ctx.create_stream();
  auto x = ctx.allocate<float>(100, stream);

  // A mistake of the caller's: the text says which, the code what may be done about it.
  try {
    const std::vector<float> too_few(99);
    stream.copy(x, too_few);
  } catch (const mojo::Error& error) {
    std::printf("%s: %s\n", mojo::status_code_name(error.code()), error.what());
    if (error.code() == mojo::StatusCode::invalid_argument) ++seen;
  }

  // More memory than there is. The state is intact: the next allocation that fits succeeds.
  try {
    const auto huge = ctx.allocate<float>(std::uint64_t{1} << 50, stream);
  } catch (const mojo::OutOfMemory& error) {
    std::printf("%s\n", error.what());
    ++seen;
  }

  // Work that fails when it runs: here it is queued, and the call returns as usual.
  stream.enqueue_host_func([] { throw std::domain_error("a host function that fails"); });
  stream.fill(x, 1.0F);
  try {
    stream.synchronize();  // raises it, as what was thrown
  } catch (const std::domain_error& error) {
    std::printf("raised by synchronize: %s\n", error.what());
    ++seen;
  }
  stream.synchronize();  // once: this succeeds, and x has been filled

  // Source that does not compile: the compiler's own words, with the line of the source.
  try {
    static_cast<void>(
        ctx.compile_function<void(float)>("extern \"C\" MOJO_KERNEL void f(float a) {\n  undeclared = a;\n}\n", "f"));
  } catch (const mojo::Error& error) {
    std::printf("%s\n", error.what());
    ++seen;
  }

  // The untyped launch returns the message instead of throwing.
  if (const auto message = stream.enqueue(mojo::UntypedFunction(), {.grid = {1}, .block = {1}}, {}, {})) {
    std::printf("%s\n", message->c_str());
    ++seen;
  }
  return seen == 5 ? 0 : 1;
}
