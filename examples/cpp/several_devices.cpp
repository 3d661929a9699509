// Several devices: a part of the work on each, the results together on the first.
//
// Memory, streams and events belong to one device. A copy may have one side on another device; it is queued on one stream,
// here the receiver's, and the other device's stream has to be ordered with it: the receiver waits for the part to be
// there, and record_stream keeps the sender's memory until it has been read.
//
// The host device counts as as many as TORCH_MOJO_BACKEND_HOST_DEVICES says.
#include <mojo/mojo.h>

#include <cstdio>
#include <vector>

int main() {
  constexpr int part = 1000;
  const int count = mojo::DeviceContext::count();
  const mojo::DeviceContext first(0);
  const mojo::DeviceStream gather = first.create_stream();
  auto all = first.allocate<int>(part * count, gather);

  for (int device = 0; device < count; ++device) {
    const mojo::DeviceContext ctx(device);
    const mojo::DeviceStream stream = ctx.create_stream();
    auto x = ctx.allocate<int>(part, stream);
    stream.fill(x, device + 1);

    gather.enqueue_wait_for(stream);  // all that is queued on it so far
    gather.copy(all.part(device * part, part), x);
    x.record_stream(gather);
  }

  std::vector<int> result(static_cast<std::size_t>(part * count));
  gather.copy(result, all);
  for (int device = 0; device < count; ++device) {
    for (int i = 0; i < part; ++i) {
      if (result[static_cast<std::size_t>(device * part + i)] != device + 1) return 1;
    }
  }
  std::printf("%d device%s took part\n", count, count == 1 ? "" : "s");
  return 0;
}
