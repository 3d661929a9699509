#include "ops/scalar.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "mojo/device_stream.h"
#include "ops/op_counter.h"
#include "ops/shape_probe.h"
#include "torch_backend/current.h"
#include "torch_backend/errors.h"

namespace mojo::ops {

namespace {

constinit OpCounter local_scalar_dense_counter{"aten::_local_scalar_dense"};

at::Scalar local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  refuse_while_probing();
  alignas(16) std::array<std::byte, 16> bytes;
  torch_backend::translated([&] {
    torch_backend::current_stream(self.device().index())
        .download(bytes.data(), DevicePtr::from_opaque(self.const_data_ptr()), self.itemsize(), /*non_blocking=*/false);
  });
  local_scalar_dense_counter.waited("gives a value to the host");
  return AT_DISPATCH_V2(self.scalar_type(), "_local_scalar_dense_cpu", AT_WRAP([&] {
                          scalar_t value;
                          std::memcpy(&value, bytes.data(), sizeof(value));
                          return at::Scalar(value);
                        }),
                        AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
                        AT_EXPAND(AT_FLOAT8_TYPES), at::kHalf, at::kBFloat16, at::kBool, at::kComplexHalf);
}

}  // namespace

void register_scalar(torch::Library& library) { library.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense)); }

}  // namespace mojo::ops
