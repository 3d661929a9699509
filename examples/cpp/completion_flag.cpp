// A stream that waits for a host thread.
//
// A CompletionFlag is a 64-bit value. A stream that waits for it stands still until the value equals the one it waits for,
// and holds nothing else meanwhile: no other stream, no host thread. Here a thread prepares data whose upload is already
// queued. There is a flag for each chunk: the wait is for equality, so a flag that had gone on to the next value before the
// stream looked would hold it for ever.
#include <mojo/mojo.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <span>
#include <vector>

int main() {
  constexpr std::size_t chunk = 1000, chunks = 4;
  const mojo::DeviceContext ctx(0);
  const mojo::DeviceStream stream = ctx.create_stream();
  auto host = ctx.allocate_pinned<int>(chunk * chunks);
  auto x = ctx.allocate<int>(chunk * chunks, stream);
  const auto part = [&](std::size_t i) { return std::span(host.data(), host.size()).subspan(i * chunk, chunk); };

  // Queue everything first. Should this function be left early, the flags go before the buffers do, and that releases the
  // stream, with an error that stays on it.
  std::vector<mojo::CompletionFlag> ready;
  for (std::size_t i = 0; i < chunks; ++i) {
    ready.emplace_back(ctx);
    stream.wait_for_host_value(ready[i], 1);
    stream.copy(x.part(i * chunk, chunk), part(i));  // pinned memory: read when the copy runs, after the signal
  }

  // The thread that feeds the stream.
  auto feeder = std::async(std::launch::async, [&] {
    for (std::size_t i = 0; i < chunks; ++i) {
      std::ranges::fill(part(i), static_cast<int>(i));
      ready[i].signal(1);
    }
  });
  feeder.get();

  std::vector<int> result(chunk * chunks);
  stream.copy(result, x);
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result[i] != static_cast<int>(i / chunk)) return 1;
  }
  std::printf("%zu chunks were fed\n", chunks);
  return 0;
}
