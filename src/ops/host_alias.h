// What it is: TensorDescriptor, what queued work needs to know of a tensor, and as_cpu, which makes a CPU tensor of it
//   on the worker.
// Ordering: a descriptor keeps no memory alive: the allocator reuses freed memory in stream order, so that work queued
//   before the free still finds its data.
// Threads: a descriptor is a value; as_cpu is for the task that holds it.
// Errors: none, but for the conversion of a copy-on-write storage, which may allocate.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/SizesAndStrides.h>

#include <cstddef>
#include <cstdint>

#include "mojo/device_ptr.h"
#include "ops/task.h"

namespace mojo::ops {

// Refers to memory (a device tensor, a tensor in pinned memory), or holds the value of a CPU tensor itself. It never
// refers to the tensor or its storage: those belong to the caller, and their last reference may need the GIL.
class TensorDescriptor {
 public:
  TensorDescriptor() noexcept = default;  // an undefined tensor
  // Refers to the memory of `tensor`, of a device or pinned; throws for any other. `written`: the work changes it (a copy-on-write storage gets its own memory now).
  explicit TensorDescriptor(const at::Tensor& tensor, bool written = true);
  // Holds the value that `tensor`, on the CPU, has now.
  static TensorDescriptor holding(const at::Tensor& tensor);

  bool defined() const noexcept { return flags_ & is_defined; }
  bool wrapped_number() const noexcept { return flags_ & is_wrapped_number; }
  at::ScalarType dtype() const noexcept { return dtype_; }
  at::IntArrayRef sizes() const noexcept { return shape_.sizes_arrayref(); }
  // Whether `alias` (as_cpu), of the same sizes, still has the strides, the memory and the lazy bits that it began with.
  bool has_form_of(const at::Tensor& alias) const;
  // The memory that the tensor's elements span; null ranges for held values.
  Access access(bool written) const noexcept;
  // Two descriptors of one storage give the same; null for held values.
  const void* storage() const noexcept { return flags_ & holds_value ? nullptr : memory_.data; }

 private:
  friend at::Tensor as_cpu(const TensorDescriptor& descriptor, bool resizable);
  friend at::Tensor as_cpu(const TensorDescriptor& descriptor, const c10::Storage& storage);

  enum Flag : std::uint8_t {
    is_defined = 1,
    is_conj = 2,
    is_neg = 4,
    is_wrapped_number = 8,
    holds_value = 16,
  };
  struct Memory {
    void* data;           // start of the storage
    std::size_t bytes;    // of the storage
    std::int64_t offset;  // of the tensor, elements
  };

  TensorDescriptor(const at::Tensor& tensor, std::uint8_t flags);

  union {
    Memory memory_ = {nullptr, 0, 0};
    std::byte value_[16];  // of one element
  };
  c10::impl::SizesAndStrides shape_;
  at::Tensor copy_;  // a held value of more than one element: a copy that nobody else knows
  at::ScalarType dtype_ = at::kFloat;
  std::uint8_t flags_ = 0;
};

// A CPU tensor over what `descriptor` describes, with the sizes, strides, offset, conj and neg bits and the
// wrapped-number flag of the original. Valid as long as the descriptor stays where it is. Its storage cannot be resized,
// unless `resizable`: then it gets memory of its own when it has to grow.
at::Tensor as_cpu(const TensorDescriptor& descriptor, bool resizable = false);
// The same over `storage`, the storage of an alias of the same memory, so that core's checks see that they overlap.
at::Tensor as_cpu(const TensorDescriptor& descriptor, const c10::Storage& storage);

}  // namespace mojo::ops
