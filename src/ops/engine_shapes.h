// What it is: the shapes of an op's results, asked of core's own code on the calling thread and remembered per thread.
// Ordering: enqueues nothing and waits for nothing. Threads: the memory is per thread.
// Errors: argument errors, with core's texts.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/impl/SizesAndStrides.h>

#include <memory>
#include <vector>

#include "ops/engine_call.h"

namespace mojo::ops {

struct ResultShape {
  c10::impl::SizesAndStrides shape;
  at::ScalarType dtype = at::kFloat;
  bool defined = false;
  int argument = -1;  // of a resize: the output that has another shape now
};

struct Shapes {
  bool known = true;                 // false: only running the op can tell
  std::vector<ResultShape> fresh;    // one for each result that is a new tensor
  std::vector<ResultShape> resizes;  // outputs that have to be resized first
};

// The shapes for `call`. Valid while the caller holds it.
std::shared_ptr<const Shapes> shapes_of(const Call& call);

// Raises what CPU says of the call's dtypes, options and numbers, found out on tensors of one element.
void rehearse_small(const Call& call);

}  // namespace mojo::ops
