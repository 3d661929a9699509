// Two streams and an event: what one stream produces, the other consumes.
//
// Streams are not ordered with each other unless a wait says so. An event marks a point of one stream; another stream that
// waits for it runs its later work after that point. No host thread waits for anything until the end.
#include <mojo/mojo.h>

#include <cstdio>
#include <vector>

int main() {
  constexpr int n = 100'000;
  const mojo::DeviceContext ctx(0);
  const mojo::DeviceStream producer = ctx.create_stream();
  const mojo::DeviceStream consumer = ctx.create_stream({.priority = -1});  // goes first when both are ready
  const mojo::DeviceEvent begin = ctx.create_event({.timing = true}), end = ctx.create_event({.timing = true});
  mojo::DeviceEvent filled = ctx.create_event();

  auto x = ctx.allocate<int>(n, producer);
  auto y = ctx.allocate<int>(n, consumer);

  producer.fill(x, 7);
  producer.record_event(filled);      // all that is queued on `producer` so far
  consumer.enqueue_wait_for(filled);  // without this line `consumer` may copy x before it is filled
  consumer.copy(y, x);

  // x belongs to `producer`. When it is freed, the memory may serve later work of `producer` at once, while `consumer` may
  // still be reading it. This tells the allocator to wait for that.
  x.record_stream(consumer);
  x = {};  // freed here: no call waits

  std::vector<int> result(n);
  consumer.copy(result, y);  // into ordinary memory: returns when the data is there
  for (const int value : result) {
    if (value != 7) return 1;
  }
  std::printf("%d elements arrived\n", n);
  return 0;
}
