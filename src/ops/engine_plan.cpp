#include "ops/engine_plan.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>
#include <c10/core/DispatchKey.h>

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "ops/shape_rules.h"

namespace mojo::ops {

namespace {

using c10::DispatchKey;

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Ops whose results, or whose purpose, are tensors of a layout that the device does not have.
constexpr std::array<std::string_view, 5> refused_prefixes = {"aten::_to_sparse", "aten::_nested", "aten::quantize",
                                                              "aten::_empty_affine_quantized", "aten::_spdiags"};
constexpr std::array<std::string_view, 7> refused_names = {"aten::to_mkldnn",
                                                           "aten::_empty_per_channel_affine_quantized",
                                                           "aten::_make_per_tensor_quantized_tensor",
                                                           "aten::_make_per_channel_quantized_tensor",
                                                           "aten::_validate_compressed_sparse_indices",
                                                           "aten::_padded_dense_to_jagged_forward",
                                                           "aten::sspaddmm.out"};

// What CUDA takes CPU tensors of any size for.
constexpr std::array<std::string_view, 8> cpu_tensor_names = {
    "aten::index.Tensor",     "aten::index.Tensor_out", "aten::_index_put_impl_",          "aten::bernoulli_.Tensor",
    "aten::_ctc_loss.Tensor", "aten::_ctc_loss",        "aten::_ctc_loss_backward.Tensor", "aten::bernoulli.Tensor"};

// In-place ops whose Meta kernels let wrong arguments pass.
constexpr std::array<std::string_view, 5> unjudged_names = {
    "aten::masked_fill_", "aten::masked_scatter_", "aten::index_fill_", "aten::_index_put_impl_", "aten::put_"};

// In-place ops that draw numbers: what is written keeps its shape; what a distribution accepts is up to its kernel.
constexpr std::array<std::string_view, 10> drawing_names = {
    "aten::uniform_",     "aten::normal_", "aten::random_",     "aten::random_.from", "aten::random_.to",
    "aten::exponential_", "aten::cauchy_", "aten::log_normal_", "aten::geometric_",   "aten::bernoulli_.float"};

// In-place ops with nothing to check before they run.
constexpr std::array<std::string_view, 2> unchecked_names = {"aten::relu_", "aten::hardswish_"};

// Ops of which CPU checks the dtypes only when it runs, and Meta not at all. (All pointwise ones, too.)
constexpr std::array<std::string_view, 20> late_dtype_names = {"aten::mm",
                                                               "aten::max",
                                                               "aten::min",
                                                               "aten::flip",
                                                               "aten::index_select",
                                                               "aten::var",
                                                               "aten::std",
                                                               "aten::repeat_interleave",
                                                               "aten::addmm",
                                                               "aten::bmm",
                                                               "aten::baddbmm",
                                                               "aten::mv",
                                                               "aten::addmv",
                                                               "aten::dot",
                                                               "aten::vdot",
                                                               "aten::_softmax",
                                                               "aten::_log_softmax",
                                                               "aten::linalg_cross",
                                                               "aten::grid_sampler_2d",
                                                               "aten::grid_sampler_3d"};

// Losses whose `.out` kernels give their output the shape of the input for a while; so it cannot be given memory.
constexpr std::array<std::string_view, 4> resizing_names = {"aten::mse_loss", "aten::smooth_l1_loss",
                                                            "aten::huber_loss", "aten::binary_cross_entropy"};

// Ops whose CPU kernels refuse an output that is also an input. (Pointwise ones do not, others seldom look.)
constexpr std::array<std::string_view, 5> distinct_names = {
    "aten::gather.out", "aten::cat.out", "aten::index_select.out", "aten::take.out", "aten::kthvalue.values"};

// Ops whose `.out` kernels on CPU give other values than the ops themselves where the input has gaps.
constexpr std::array<std::string_view, 2> unlike_out_names = {"aten::native_batch_norm",
                                                              "aten::_native_batch_norm_legit"};

// CPU's results differ from what Meta says.
constexpr std::array<std::string_view, 2> misjudged_names = {"aten::_embedding_bag",
                                                             "aten::_embedding_bag_forward_only"};

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

// Without its namespace.
std::string_view local_name(std::string_view name) { return name.substr(name.find("::") + 2); }

ArgumentType type_of(const c10::Argument& argument) {
  // The real type: `Scalar` and `ScalarType`, `Device` and so on look alike otherwise.
  const c10::TypePtr& type = argument.real_type();
  c10::TypePtr inner = type;
  const bool optional = type->kind() == c10::TypeKind::OptionalType;
  if (optional) inner = type->castRaw<c10::OptionalType>()->getElementType();
  switch (inner->kind()) {
    case c10::TypeKind::TensorType: return ArgumentType::tensor;
    case c10::TypeKind::ListType: {
      const c10::TypePtr& element = inner->castRaw<c10::ListType>()->getElementType();
      if (element->kind() == c10::TypeKind::TensorType) return ArgumentType::tensor_list;
      if (element->kind() == c10::TypeKind::OptionalType &&
          element->castRaw<c10::OptionalType>()->getElementType()->kind() == c10::TypeKind::TensorType)
        return ArgumentType::optional_tensor_list;
      return ArgumentType::other;
    }
    case c10::TypeKind::GeneratorType: return ArgumentType::generator;
    case c10::TypeKind::DeviceObjType: return ArgumentType::device;
    case c10::TypeKind::NumberType: return ArgumentType::scalar;
    default: return argument.name() == "pin_memory" ? ArgumentType::pin_memory : ArgumentType::other;
  }
}

bool is_out_argument(const c10::Argument& argument) {
  return argument.is_out() ||
         (argument.kwarg_only() && argument.alias_info() != nullptr && argument.alias_info()->isWrite());
}

// All overloads of each name, to find an op's siblings.
const std::unordered_map<std::string, std::vector<c10::OperatorName>>& overloads() {
  static const auto* const map = [] {
    auto* result = new std::unordered_map<std::string, std::vector<c10::OperatorName>>;
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames())
      if (starts_with(name.name, "aten::")) (*result)[name.name].push_back(name);
    return result;
  }();
  return *map;
}

bool same_types(const std::vector<c10::Argument>& a, const std::vector<c10::Argument>& b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    if (a[i].name() != b[i].name() || *a[i].real_type() != *b[i].real_type()) return false;
  return true;
}

// The overload that takes the same arguments and writes to outputs behind them (`with_outputs`), or the one without them.
std::optional<c10::OperatorHandle> sibling(const c10::OperatorHandle& op, std::size_t inputs, std::size_t outputs,
                                           bool with_outputs) {
  const auto found = overloads().find(op.operator_name().name);
  if (found == overloads().end()) return std::nullopt;
  const auto& arguments = op.schema().arguments();
  for (const c10::OperatorName& name : found->second) {
    if (name == op.operator_name()) continue;
    const auto other = c10::Dispatcher::singleton().findSchema(name);
    if (!other.has_value()) continue;
    const auto& theirs = other->schema().arguments();
    if (theirs.size() != inputs + (with_outputs ? outputs : 0) || !same_types(arguments, theirs, inputs)) continue;
    const bool writes_inputs = std::any_of(theirs.begin(), theirs.begin() + static_cast<std::ptrdiff_t>(inputs),
                                           [](const c10::Argument& a) { return a.alias_info() != nullptr; });
    const bool all_out =
        std::all_of(theirs.begin() + static_cast<std::ptrdiff_t>(inputs), theirs.end(), is_out_argument);
    if (!writes_inputs && all_out && other->schema().returns().size() == outputs) return other;
  }
  return std::nullopt;
}

bool has_kernel(const c10::OperatorHandle& op, DispatchKey key) { return op.hasKernelForDispatchKey(key); }

// A thread of the driver must not take the GIL, so it cannot run a kernel written in Python. The dispatcher tells where
// each kernel was registered.
bool has_python_kernel(const c10::OperatorHandle& op) {
  const std::string table = op.dumpComputedTable();
  const std::size_t start = starts_with(table, "CPU: ") ? 0 : table.find("\nCPU: ") + 1;
  const std::string_view line = std::string_view(table).substr(start, table.find('\n', start) - start);
  // "..., registered at FILE:LINE ...": in Python the file may have any name (a prompt, a notebook's cell).
  constexpr std::string_view at = "registered at ";
  const std::size_t place = line.find(at);
  if (place == std::string_view::npos) return false;
  const std::string_view file = line.substr(place + at.size(), line.find(':', place) - place - at.size());
  constexpr std::array<std::string_view, 9> extensions = {".cpp", ".cc",  ".cxx", ".c", ".cu",
                                                          ".h",   ".hpp", ".inl", ".mm"};
  return std::none_of(extensions.begin(), extensions.end(), [&](std::string_view end) { return file.ends_with(end); });
}

// sparse_csr_tensor, _sparse_coo_tensor_unsafe and their like.
bool makes_sparse(std::string_view name) {
  name.remove_prefix(std::string_view("aten::").size());
  name = name.substr(starts_with(name, "_") ? 1 : 0);
  return starts_with(name, "sparse_") && name.find("_tensor") != std::string_view::npos;
}

constexpr const char* no_shape_rule = "no rule tells the shapes of its results";

void choose_service(OpPlan& plan, bool writes, bool views) {
  const c10::OperatorHandle& op = plan.op;
  if (is_refused(plan.name)) {
    plan.service = Service::refused;
    return;
  }
  if (!op.hasComputedKernelForDispatchKey(DispatchKey::CPU)) {
    plan.service = Service::missing;
    return;
  }
  if (has_python_kernel(op)) {
    plan.service = Service::by_copies;
    plan.reason = "its CPU kernel is written in Python";
    return;
  }
  if (views) {
    plan.service = Service::on_caller;
    return;
  }
  const bool dynamic = op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output);
  const std::string_view base = op.operator_name().name;
  if (is_one_of(base, misjudged_names) || (plan.first_out >= 0 && is_one_of(base, resizing_names))) {
    plan.service = Service::waited;
    plan.reason = no_shape_rule;
    return;
  }
  if (dynamic && !plan.waits_for_masks && plan.shape_rule == nullptr) {
    plan.service = Service::waited;
    plan.reason = "the result depends on data";
    return;
  }
  for (const c10::Argument& value : op.schema().returns()) {
    if (value.type()->kind() != c10::TypeKind::TensorType && !value.alias_info()) {
      plan.service = Service::waited;
      plan.reason = "it returns something else than tensors";
      return;
    }
  }
  plan.service = Service::queued;
  const bool can_infer = plan.shape_rule != nullptr || plan.structured.has_value() ||
                         has_kernel(op, DispatchKey::Meta) ||
                         (plan.functional.has_value() && has_kernel(*plan.functional, DispatchKey::Meta));
  const bool in_place = writes && plan.first_out < 0 && plan.fresh_count == 0;
  plan.rehearses_always = is_one_of(plan.name, drawing_names);
  if (in_place && (!can_infer || plan.rehearses_always || is_one_of(plan.name, unchecked_names)))
    plan.shapes_fixed = true;
  // Lists of parameters and their states: nothing changes its shape, and a check would cost more than the call.
  if (in_place && (starts_with(plan.name, "aten::_fused_") || starts_with(plan.name, "aten::_foreach_") ||
                   starts_with(plan.name, "aten::_amp_")))
    plan.shapes_fixed = true;
  if (!plan.shapes_fixed && !can_infer) {
    plan.service = Service::waited;
    plan.reason = no_shape_rule;
  }
}

OpPlan* make_plan(const c10::OperatorHandle& op, const void* key) {
  auto plan = std::make_unique<OpPlan>(op, key, full_name(op.operator_name()));
  const c10::FunctionSchema& schema = op.schema();
  bool writes = false, views = false;
  for (const c10::Argument& argument : schema.arguments()) {
    const auto* alias = argument.alias_info();
    const bool written = alias != nullptr && alias->isWrite();
    writes |= written;
    views |= alias != nullptr && !written;
    const ArgumentType type = type_of(argument);
    const bool tensors = type <= ArgumentType::optional_tensor_list;
    plan->writes_lists |= written && type == ArgumentType::tensor_list;
    plan->has_tensor_argument |= tensors && !is_out_argument(argument);
    if (tensors && is_out_argument(argument)) {
      if (plan->first_out < 0) plan->first_out = static_cast<int>(plan->arguments.size());
    } else {
      plan->first_out = -1;  // an input behind an output
    }
    plan->arguments.push_back({type, written});
  }
  for (const c10::Argument& value : schema.returns()) {
    int source = fresh;
    if (value.alias_info() != nullptr) {
      const auto& arguments = schema.arguments();
      for (std::size_t i = 0; i < arguments.size() && source == fresh; ++i)
        if (arguments[i].alias_info() != nullptr && *arguments[i].alias_info() == *value.alias_info())
          source = static_cast<int>(i);
    }
    if (source == fresh) ++plan->fresh_count;
    plan->returns.push_back(source);
  }

  // The tag is missing on a few.
  const std::string& op_name = op.operator_name().name;
  plan->is_pointwise = op.hasTag(at::Tag::pointwise) || op_name == "aten::floor_divide" ||
                       op_name == "aten::floor_divide_" || op_name == "aten::where";
  plan->rehearses_small =
      !op.hasTag(at::Tag::nondeterministic_seeded) && (plan->is_pointwise || is_one_of(op_name, late_dtype_names));
  const bool is_aten = starts_with(plan->name, "aten::");  // the rules know core's ops, not others of the same name
  if (is_aten) plan->shape_rule = shape_rule_of(local_name(plan->name));
  if (is_aten) plan->value_check = value_check_of(local_name(op_name));
  plan->distinct_outputs = is_one_of(plan->name, distinct_names);
  plan->rehearses = is_one_of(op.operator_name().name, unjudged_names);
  plan->takes_cpu_tensors = is_one_of(plan->name, cpu_tensor_names);
  plan->waits_for_masks = op.operator_name().name == "aten::index";
  const std::size_t count = schema.arguments().size();
  constexpr auto composite = DispatchKey::CompositeExplicitAutogradNonFunctional;
  if (plan->first_out >= 0) {
    plan->functional = sibling(op, static_cast<std::size_t>(plan->first_out),
                               count - static_cast<std::size_t>(plan->first_out), false);
    if (is_aten && plan->functional.has_value())
      plan->functional_rule = shape_rule_of(local_name(full_name(plan->functional->operator_name())));
    if (plan->functional.has_value() && has_kernel(*plan->functional, composite)) plan->structured = plan->functional;
  } else {
    if (has_kernel(op, composite)) plan->structured = op;
    if (!writes && plan->fresh_count > 0) {
      const auto out = sibling(op, count, schema.returns().size(), true);
      // Not a full reduction's, which lacks a check of the functional op.
      if (out.has_value() && has_kernel(*out, DispatchKey::CPU) && !is_one_of(op_name, resizing_names) &&
          !is_one_of(op_name, unlike_out_names) && out->operator_name().overload_name != "unary_out")
        plan->out_overload = out;
    }
  }
  choose_service(*plan, writes, views);
  return plan.release();
}

// Open addressing over plan pointers. Readers take no lock; an entry is written once, and a plan that is forgotten is
// replaced by a mark.
class Table {
 public:
  const OpPlan* find(const void* key) const noexcept {
    for (std::size_t i = 0; i < size; ++i) {
      const OpPlan* plan = slots_[(start(key) + i) % size].load(std::memory_order_acquire);
      if (plan == nullptr) return nullptr;
      if (plan->key == key) return plan;
    }
    return nullptr;
  }

  const OpPlan& find_or_make(const c10::OperatorHandle& op, const void* key) {
    const std::lock_guard lock(mutex_);
    if (const OpPlan* plan = find(key)) return *plan;
    OpPlan* const plan = make_plan(op, key);
    for (std::size_t i = 0; i < size; ++i) {
      auto& slot = slots_[(start(key) + i) % size];
      const OpPlan* there = slot.load(std::memory_order_relaxed);
      if (there == nullptr || there == forgotten()) {
        slot.store(plan, std::memory_order_release);
        return *plan;
      }
    }
    TORCH_CHECK(false, "mojo backend: more than ", size, " operators");
  }

  void forget(const void* key) {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < size; ++i) {
      auto& slot = slots_[(start(key) + i) % size];
      const OpPlan* there = slot.load(std::memory_order_relaxed);
      if (there == nullptr) return;
      if (there->key == key) slot.store(forgotten(), std::memory_order_release);
    }
  }

 private:
  static constexpr std::size_t size = 8192;

  static std::size_t start(const void* key) noexcept {
    return static_cast<std::size_t>((reinterpret_cast<std::uintptr_t>(key) * 0x9E3779B97F4A7C15ull) >> 40);
  }
  // A plan that no key matches.
  static const OpPlan* forgotten() {
    static const auto* const mark =
        new OpPlan(*c10::Dispatcher::singleton().findSchema({"aten::alias", ""}), nullptr, "");
    return mark;
  }

  std::mutex mutex_;
  std::array<std::atomic<const OpPlan*>, size> slots_{};
};

Table& table() {
  static auto* const result = new Table;
  return *result;
}

class Watcher final : public c10::OpRegistrationListener {
 public:
  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    if (op.hasSchema()) table().forget(&op.schema());
  }
};

}  // namespace

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

bool is_composite(const c10::OperatorHandle& op) {
  return has_kernel(op, DispatchKey::CompositeExplicitAutogradNonFunctional) ||
         has_kernel(op, DispatchKey::CompositeExplicitAutograd) ||
         has_kernel(op, DispatchKey::CompositeImplicitAutograd);
}

bool is_refused(std::string_view name) {
  return starts_with(name, "aten::") &&
         (is_one_of(name, refused_names) || makes_sparse(name) ||
          std::any_of(refused_prefixes.begin(), refused_prefixes.end(),
                      [&](std::string_view prefix) { return starts_with(name, prefix); }));
}

const OpPlan& plan_of(const c10::OperatorHandle& op) {
  const void* const key = &op.schema();
  if (const OpPlan* plan = table().find(key)) return *plan;
  return table().find_or_make(op, key);
}

void watch_registrations() {
  // Leaked: it watches as long as the process lives.
  new c10::RegistrationHandleRAII(c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Watcher>()));
}

}  // namespace mojo::ops
