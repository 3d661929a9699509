#include "ops/record_stream.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "torch_backend/current.h"
#include "torch_backend/device_allocator.h"
#include "torch_backend/errors.h"

namespace mojo::ops {

namespace {

void record_stream_kernel(at::Tensor& self, at::Stream stream) {
  const DeviceStream used_on = torch_backend::from_c10(stream);
  torch_backend::translated([&] { torch_backend::record_stream(self.storage().data_ptr(), used_on); });
}

}  // namespace

void register_record_stream(torch::Library& library) { library.impl("record_stream", TORCH_FN(record_stream_kernel)); }

}  // namespace mojo::ops
