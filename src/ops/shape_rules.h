// What it is: the shapes of the results of some ops, by rules of our own. Core's rules for these are written in Python: they
//   take milliseconds, the first of them seconds, and where CPU's results have another form than other devices' they
//   tell the others'.
// Ordering: none. Threads: any.
// Errors: none. A rule answers only for calls that are plainly right, and leaves all others, wrong ones too, to core.
#pragma once

#include <string_view>

#include "ops/engine_call.h"
#include "ops/engine_shapes.h"

namespace mojo::ops {

// Adds to `shapes` what the call gives, or returns false and leaves it alone. Of a pointwise op only sizes and dtype
// count: its strides come from the iteration.
using ShapeRule = bool (*)(const Call& call, Shapes& shapes);

// nullptr: there is none. `name` is without its namespace, "relu" or "eye.m_out".
ShapeRule shape_rule_of(std::string_view name);

// Those for the ops of neural networks.
ShapeRule network_shape_rule_of(std::string_view name);

}  // namespace mojo::ops
