// A function of the host's in the middle of a stream.
//
// It runs on a thread of the driver once all work queued before it is done, and work queued after it waits for it. It is
// for short things: to signal another thread, to note progress. It must not call the device API: such a call is refused
// with an error, since a thread of the driver that waited for the device could wait for itself.
#include <mojo/mojo.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <numeric>
#include <utility>

// What the functions write. They run later, perhaps after this program has left the block that queued them, so they share
// it instead of referring to a local variable.
struct Result {
  int sum = 0;
  bool refused = false;
};

int main() {
  const mojo::DeviceContext ctx(0);
  const mojo::DeviceStream stream = ctx.create_stream();
  const auto result = std::make_shared<Result>();
  auto x = ctx.allocate<int>(1000, stream);
  auto host = ctx.allocate_pinned<int>(1000);

  stream.fill(x, 3);
  stream.copy(host, x);  // queued: `host` is to be read by work after it, or after a wait

  // Anything that can be called, also what can only be moved. What it holds is destroyed on the driver's thread.
  stream.enqueue_host_func(
      [host = std::move(host), result] { result->sum = std::accumulate(host.begin(), host.end(), 0); });

  // As in C: a function pointer and a pointer for it, to something that lives until it has run.
  static std::atomic<int> calls;
  calls = 0;
  stream.enqueue_host_func(
      +[](void* user) { static_cast<std::atomic<int>*>(user)->fetch_add(1); }, &calls);

  // Refused, and nothing hangs.
  stream.enqueue_host_func([stream, result] {
    try {
      stream.synchronize();
    } catch (const mojo::Error& error) {
      result->refused = error.code() == mojo::StatusCode::failed_precondition;
    }
  });

  stream.synchronize();
  std::printf("the sum is %d, after %d call\n", result->sum, calls.load());
  return result->sum == 3000 && calls == 1 && result->refused ? 0 : 1;
}
