// What it is: OpPlan, what the engine knows of an operator: which arguments are tensors, which of them it writes, and
//   how its calls are served. Made from the operator's schema, tags and kernels at its first call.
// Ordering: none. Threads: plan_of may be called from any thread and takes no lock once a plan exists; plans live as long
//   as the process.
// Errors: none.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/op_counter.h"
#include "ops/value_checks.h"

namespace mojo::ops {

struct Call;
struct Shapes;
using ShapeRule = bool (*)(const Call& call, Shapes& shapes);  // see shape_rules.h

enum class Service : std::uint8_t {
  queued,     // shapes are known at the call
  waited,     // result sizes depend on data, or nobody can tell them beforehand
  on_caller,  // a view: core's kernel, on the device tensors themselves
  by_copies,  // the CPU kernel is Python's: on the calling thread, on copies
  refused,    // a layout that the device does not have
  missing,    // CPU has no kernel either
};

enum class ArgumentType : std::uint8_t {
  tensor,
  tensor_list,
  optional_tensor_list,
  generator,
  device,
  pin_memory,
  scalar,
  other
};

struct Argument {
  ArgumentType type = ArgumentType::other;
  bool written = false;
};

inline constexpr int fresh = -1;  // OpPlan::returns: a new tensor, not an argument

// Why calls wait of an op that is otherwise queued.
inline constexpr const char* reason_masks = "an index is a mask";
inline constexpr const char* reason_overlap = "an output overlaps itself or an input";
inline constexpr const char* reason_not_inferred = "the shapes could not be inferred from these arguments";

struct OpPlan {
  OpPlan(c10::OperatorHandle handle, const void* key, std::string full_name)
      : op(handle), key(key), name(std::move(full_name)) {}

  c10::OperatorHandle op;
  const void* const key;
  const std::string name;  // aten::add.out
  Service service = Service::missing;
  const char* reason = "";  // of a service that is not `queued`
  std::vector<Argument> arguments;
  std::vector<int> returns;  // the index of the argument that is returned, or `fresh`
  int fresh_count = 0;
  int first_out = -1;  // the index from which on all arguments are outputs (`.out` overloads), or -1

  bool is_pointwise = false;
  bool has_tensor_argument = false;
  bool takes_cpu_tensors = false;  // of any size, beside device tensors
  bool shapes_fixed = false;       // writes only to arguments, never changes their sizes, has nothing worth checking
  bool rehearses_small = false;    // dtypes and options are checked by a run on tensors of one element
  bool rehearses_always = false;   // that at each call: whether numbers are accepted depends on their values
  bool rehearses = false;          // arguments are checked by a run on zeros, where that is cheap
  bool waits_for_masks = false;    // result sizes depend on data if an index is a mask

  // Our own rule for the results' shapes, or nullptr.
  ShapeRule shape_rule = nullptr;
  // That of the op without outputs: it reads the inputs, which come first, and tells what the outputs should be.
  ShapeRule functional_rule = nullptr;
  ValueCheck value_check = nullptr;  // before its kernel runs, or nullptr
  bool writes_lists = false;         // of tensors
  bool distinct_outputs = false;     // CPU refuses an output that is also an input
  // The overload whose core kernel works out shapes on any device (structured ops): this op itself or its sibling
  // without outputs.
  std::optional<c10::OperatorHandle> structured;
  // The same op without outputs, for `.out` overloads.
  std::optional<c10::OperatorHandle> functional;
  // The overload that writes to given outputs, where CPU has a kernel of its own for it.
  std::optional<c10::OperatorHandle> out_overload;

  mutable OpCounter counter{name.c_str()};
};

const OpPlan& plan_of(const c10::OperatorHandle& op);

std::string full_name(const c10::OperatorName& name);  // aten::add.out
// Whether core makes the op of others, for any device.
bool is_composite(const c10::OperatorHandle& op);
// Whether the op of that full name makes a tensor of a layout that the device does not have.
bool is_refused(std::string_view name);

// Forgets plans of operators that are taken out of the dispatcher. Once.
void watch_registrations();

}  // namespace mojo::ops
