// What it is: the shapes of the results of some ops, by rules of our own. Core's rules for these are written in Python: they
//   take milliseconds, the first of them seconds, and where CPU's results have another form than other devices' they
//   tell the others'.
// Ordering: none. Threads: any.
// Errors: none. A rule answers only for calls that are plainly right, and leaves all others, wrong ones too, to core.
#pragma once

#include <span>
#include <string_view>
#include <utility>

#include "ops/engine_plan.h"

namespace mojo::ops {

// A rule adds to `shapes` what the call gives, or returns false and leaves it alone. Of a pointwise op only sizes and
// dtype count: its strides come from the iteration. nullptr: there is none. `name` is without its namespace, "relu" or
// "eye.m_out".
ShapeRule shape_rule_of(std::string_view name);

using NamedShapeRule = std::pair<std::string_view, ShapeRule>;
// Those for the ops of neural networks, which shape_rule_of knows too.
std::span<const NamedShapeRule> network_shape_rules();

}  // namespace mojo::ops
