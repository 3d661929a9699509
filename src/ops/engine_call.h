// What it is: Call, one call of an operator being prepared: its tensors, the device it runs on, and the key under which
//   the shapes of its results are remembered.
// Ordering: none. Threads: belongs to the calling thread. Errors: core's text for tensors on different devices.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "ops/engine_plan.h"

namespace mojo::ops {

struct CallTensor {
  const at::Tensor* tensor;  // defined
  int argument;
  bool written;
  bool on_device;  // else on the CPU: its value is copied at the call
};

struct Call {
  // Finds the tensors and checks their devices.
  Call(const OpPlan& plan, at::ArrayRef<c10::IValue> arguments);

  const OpPlan& plan;
  const at::ArrayRef<c10::IValue> arguments;
  c10::SmallVector<CallTensor, 8> tensors;
  c10::DeviceIndex device = -1;
  bool has_mask = false;  // a tensor in a list of indices is a mask
  // All that core's shape functions see: the op, sizes, strides, dtypes, numbers, and whether algorithms have to be
  // deterministic, which some ops refuse then; not the values of floating-point scalars, since no shape depends on them
  // and an optimizer passes another one at each step.
  c10::SmallVector<std::uint64_t, 96> key;

 private:
  void add(const c10::IValue& value, const Argument& argument, int index);
  void add_tensor(const at::Tensor& tensor, const Argument& argument, int index);
  void add_word(std::uint64_t word) { key.push_back(word); }
};

// Whether an index of that dtype chooses elements, and is no list of numbers.
inline bool is_mask(const at::Tensor& index) {
  return index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
}

// "Expected all tensors to be on the same device, ..."
[[noreturn]] void throw_different_devices(const Call& call);

}  // namespace mojo::ops
