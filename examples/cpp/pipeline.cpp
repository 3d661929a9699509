// Upload, compute and download at the same time, in chunks, with pinned buffers.
//
// Three streams, one for each direction and one for the computation. While chunk i is computed, chunk i+1 is on its way to
// the device and chunk i-1 on its way back. Copies from and to pinned memory are queued and block nothing; the host waits
// only before it writes into a pinned buffer that is used for the second time, and at the end.
#include <mojo/mojo.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <vector>

constexpr const char* source = R"(
extern "C" MOJO_KERNEL void scale(mojo::Buffer<const float> x, mojo::Buffer<float> y, float a) {
  for (unsigned i = mojo::global_index(); i < x.size(); i += mojo::global_size()) y[i] = a * x[i];
}
)";

// What one chunk needs; two of these take turns.
struct Slot {
  mojo::PinnedBuffer<float> in, out;
  mojo::DeviceBuffer<float> x, y;
  mojo::DeviceEvent uploaded, computed, downloaded;
  std::size_t chunk = 0;
};

int main() {
  constexpr std::size_t chunk = 64 * 1024, chunks = 16;
  const mojo::DeviceContext ctx(0);
  const mojo::DeviceStream up = ctx.create_stream(), main = ctx.create_stream(), down = ctx.create_stream();
  const auto scale = ctx.compile_function<void(mojo::Buffer<const float>, mojo::Buffer<float>, float)>(source, "scale");

  std::vector<float> input(chunk * chunks), output(chunk * chunks);
  std::iota(input.begin(), input.end(), 0.0F);

  const auto make_slot = [&] {
    Slot slot{ctx.allocate_pinned<float>(chunk),
              ctx.allocate_pinned<float>(chunk),
              ctx.allocate<float>(chunk, up),
              ctx.allocate<float>(chunk, main),
              ctx.create_event(),
              ctx.create_event(),
              ctx.create_event()};
    slot.x.record_stream(
        main);  // each buffer is also used on the next stream: once it is freed, its memory waits for that
    slot.y.record_stream(down);
    return slot;
  };
  std::array<Slot, 2> slots{make_slot(), make_slot()};

  // Takes the slot's previous result out, once it has arrived.
  const auto collect = [&](Slot& slot) {
    if (!slot.downloaded.recorded()) return;
    slot.downloaded.synchronize();  // the only place where the host waits
    std::copy(slot.out.begin(), slot.out.end(), output.begin() + static_cast<std::ptrdiff_t>(slot.chunk * chunk));
  };

  for (std::size_t i = 0; i < chunks; ++i) {
    Slot& slot = slots[i % slots.size()];
    collect(slot);  // afterwards all earlier work on this slot is complete
    slot.chunk = i;
    std::copy_n(input.begin() + static_cast<std::ptrdiff_t>(i * chunk), chunk, slot.in.begin());

    up.copy(slot.x, slot.in);
    up.record_event(slot.uploaded);

    main.enqueue_wait_for(slot.uploaded);
    main.enqueue_function(scale, {.grid = {16}, .block = {256}}, slot.x, slot.y, 2.0F);
    main.record_event(slot.computed);

    down.enqueue_wait_for(slot.computed);
    down.copy(slot.out, slot.y);
    down.record_event(slot.downloaded);
  }
  for (Slot& slot : slots) collect(slot);

  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output[i] != 2.0F * input[i]) return 1;
  }
  std::printf("%zu chunks went through\n", chunks);
  return 0;
}
