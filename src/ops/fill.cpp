#include "ops/fill.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>
#include <c10/util/complex.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "mojo/device_stream.h"
#include "ops/copy.h"
#include "ops/host_alias.h"
#include "ops/shape_probe.h"
#include "ops/task.h"
#include "torch_backend/current.h"
#include "torch_backend/errors.h"

namespace mojo::ops {

namespace {

struct Pattern {
  std::uint64_t bits = 0;
  unsigned width = 0;  // bytes; 0: the value is wider than a queue can fill with
};

template <class T>
Pattern pattern_of(T value) {
  Pattern pattern;
  if constexpr (sizeof(T) <= sizeof(pattern.bits)) {
    std::memcpy(&pattern.bits, &value, sizeof(T));
    pattern.width = sizeof(T);
  } else {
    static_assert(sizeof(T) == 2 * sizeof(pattern.bits));
    std::uint64_t halves[2];
    std::memcpy(halves, &value, sizeof(T));
    if (halves[0] == halves[1]) pattern = {halves[0], sizeof(pattern.bits)};
  }
  return pattern;
}

// Raises what CPU raises for a value that `dtype` cannot hold.
Pattern pattern_of(const at::Scalar& value, at::ScalarType dtype, bool single) {
  // The commonest fill, and the one value that every dtype holds as zero bytes.
  if (value.isIntegral(/*includeBool=*/true) && value.equal(0)) return {0, 1};
  switch (dtype) {
#define MOJO_NATIVE_TYPE(type, name) \
  case at::ScalarType::name: return pattern_of(value.to<type>());
    AT_FORALL_INT_TYPES(MOJO_NATIVE_TYPE)
    MOJO_NATIVE_TYPE(bool, Bool)
    MOJO_NATIVE_TYPE(float, Float)
    MOJO_NATIVE_TYPE(double, Double)
    MOJO_NATIVE_TYPE(c10::complex<float>, ComplexFloat)
    MOJO_NATIVE_TYPE(c10::complex<double>, ComplexDouble)
#undef MOJO_NATIVE_TYPE
    default: break;
  }
  // How CPU rounds and checks for the other dtypes is its own affair. It has another way for tensors of one element.
  const at::Tensor element = at::detail::empty_cpu({single ? 1 : 2}, dtype);
  element.fill_(value);
  Pattern pattern;
  pattern.width = static_cast<unsigned>(element.itemsize());
  TORCH_INTERNAL_ASSERT(pattern.width <= sizeof(pattern.bits));
  std::memcpy(&pattern.bits, element.const_data_ptr(), pattern.width);
  return pattern;
}

constinit OpCounter fill_scalar_counter{"aten::fill_.Scalar"};
constinit OpCounter fill_tensor_counter{"aten::fill_.Tensor"};
constinit OpCounter zero_counter{"aten::zero_"};

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  fill_with(self, value, fill_scalar_counter);
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
              " dimensions.");
  if (!self.is_privateuseone())
    self.fill_(value.item());
  else if (value.device() != self.device())
    fill_with(self, value.item(), fill_tensor_counter);
  else if (self.is_alias_of(value))
    copy_into(self, value.clone(), /*non_blocking=*/true, fill_tensor_counter);  // or it would change while it is read
  else
    copy_into(self, value, /*non_blocking=*/true, fill_tensor_counter);
  return self;
}

at::Tensor& zero(at::Tensor& self) {
  fill_with(self, 0, zero_counter);
  return self;
}

}  // namespace

void fill_with(const at::Tensor& tensor, const at::Scalar& value, OpCounter& counter) {
  const Pattern pattern = pattern_of(value, tensor.scalar_type(), tensor.numel() == 1);
  // A factory that fills what it makes may well be asked for shapes alone.
  if (tensor.numel() == 0 || shape_probe()) return;
  refuse_while_probing();
  const DeviceStream stream = torch_backend::current_stream(tensor.device().index());
  if (pattern.width != 0 && tensor.is_non_overlapping_and_dense() && !tensor.is_conj() && !tensor.is_neg()) {
    torch_backend::translated([&] {
      stream.fill(DevicePtr::from_opaque(tensor.mutable_data_ptr()),
                  static_cast<std::uint64_t>(tensor.numel()) * tensor.itemsize(), pattern.bits, pattern.width);
    });
    counter.queued();
    return;
  }
  torch_backend::translated([&] {
    TensorDescriptor target(tensor);
    const Access access = target.access(true);
    enqueue_cpu_task(stream, "aten::fill_", [target = std::move(target), value] { as_cpu(target).fill_(value); },
                     {&access, 1});
  });
  counter.queued();
}

void register_fill(torch::Library& library) {
  library.impl("fill_.Scalar", TORCH_FN(fill_scalar));
  library.impl("fill_.Tensor", TORCH_FN(fill_tensor));
  library.impl("zero_", TORCH_FN(zero));
}

}  // namespace mojo::ops
