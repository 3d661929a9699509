// What it is: Tensor.record_stream: tells the allocator that a tensor's memory is used on another stream.
// Ordering: enqueues nothing; the memory, once freed, is reused only after the work queued on that stream by then.
//   The whole storage counts, so views and slices may be passed. The stream may belong to another device.
// Threads: any. Errors: c10::Error for a stream of another device type or an id that no stream has (S-12).
#pragma once

#include <torch/library.h>

namespace mojo::ops {

// record_stream.
void register_record_stream(torch::Library& library);

}  // namespace mojo::ops
