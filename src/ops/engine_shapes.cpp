#include "ops/engine_shapes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/List.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string_view>
#include <utility>

#include "ops/factories.h"
#include "ops/shape_probe.h"
#include "ops/shape_rule_forms.h"
#include "ops/task.h"

namespace mojo::ops {

namespace {

using c10::DispatchKey;
using c10::IValue;
using torch::jit::Stack;

void set_shape(ResultShape& result, at::IntArrayRef sizes, at::IntArrayRef strides) {
  result.shape.set_sizes(sizes);
  result.shape.set_strides(strides);
}

ResultShape shape_of(const at::Tensor& tensor) {
  ResultShape result;
  result.defined = tensor.defined();
  if (!result.defined) return result;
  if (tensor.layout() != at::kStrided) throw NotInferable();
  result.dtype = tensor.scalar_type();
  set_shape(result, tensor.sizes(), tensor.strides());
  return result;
}

// --- stand-ins: the call's arguments with each tensor replaced ---

template <class MakeTensor>
IValue replaced(const IValue& value, const Argument& argument, at::Device device, const MakeTensor& make) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? IValue(make(tensor)) : IValue(at::Tensor());
  }
  if (argument.type == ArgumentType::tensor_list && value.isList()) {
    c10::List<at::Tensor> list;
    for (const IValue& element : value.toListRef()) list.push_back(make(element.toTensor()));
    return list;
  }
  if (argument.type == ArgumentType::optional_tensor_list && value.isList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const IValue& element : value.toListRef())
      list.push_back(element.isTensor() && element.toTensor().defined() ? std::optional(make(element.toTensor()))
                                                                        : std::nullopt);
    return list;
  }
  if (argument.type == ArgumentType::device && value.isDevice()) return device;
  if (argument.type == ArgumentType::generator || argument.type == ArgumentType::pin_memory) return {};
  return value;
}

template <class MakeTensor>
Stack stand_ins(const Call& call, std::size_t count, at::Device device, const MakeTensor& make) {
  Stack stack;
  stack.reserve(call.arguments.size());
  for (std::size_t i = 0; i < count; ++i)
    stack.push_back(replaced(call.arguments[i], call.plan.arguments[i], device, make));
  return stack;
}

void copy_flags(const at::Tensor& to, const at::Tensor& from) {
  c10::TensorImpl* const impl = to.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(from.sizes(), from.strides(), 0);
  if (from.is_conj()) impl->_set_conj(true);
  if (from.is_neg()) impl->_set_neg(true);
  if (from.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
}

// A Meta tensor of the same form. Its storage is as large as can be, so that no view or resize of it fails.
at::Tensor on_meta(const at::Tensor& tensor) {
  static c10::Allocator* const allocator = c10::GetAllocator(c10::DeviceType::Meta);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), std::size_t{1} << 62,
                                                             c10::DataPtr(nullptr, at::Device(at::kMeta)), allocator,
                                                             /*resizable=*/true));
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(DispatchKey::Meta), c10::scalarTypeToTypeMeta(tensor.scalar_type()));
  copy_flags(result, tensor);
  return result;
}

// A CPU tensor of the same form, all zeros; a number is itself.
at::Tensor zeros_on_cpu(const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.dim() == 0) return tensor;
  std::int64_t elements = tensor.numel() == 0 ? 0 : 1;
  for (std::int64_t dim = 0; dim < tensor.dim() && elements != 0; ++dim)
    elements += (tensor.size(dim) - 1) * tensor.stride(dim);
  static c10::Allocator* const allocator = c10::GetAllocator(c10::DeviceType::CPU);
  const std::size_t bytes = static_cast<std::size_t>(elements) * tensor.itemsize();
  c10::DataPtr data = allocator->allocate(bytes);
  if (bytes != 0) std::memset(data.get(), 0, bytes);
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                             std::move(data), allocator, /*resizable=*/true));
  at::Tensor result = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(DispatchKey::CPU), c10::scalarTypeToTypeMeta(tensor.scalar_type()));
  copy_flags(result, tensor);
  return result;
}

// --- the three ways to know ---

class ProbeScope {
 public:
  ProbeScope() noexcept : before_(std::exchange(shape_probe(), true)) {}
  ~ProbeScope() { shape_probe() = before_; }
  ProbeScope(const ProbeScope&) = delete;
  ProbeScope& operator=(const ProbeScope&) = delete;

 private:
  const bool before_;
};

std::size_t input_count(const OpPlan& plan) {
  return plan.first_out >= 0 ? static_cast<std::size_t>(plan.first_out) : plan.arguments.size();
}

// Core's kernel for any device, with allocation switched off: it checks the arguments, works out the shapes, and calls
// the `.out` overload, which comes back to the engine and ends there.
Stack ask_structured(const Call& call) {
  const ProbeScope scope;
  const auto count = static_cast<std::ptrdiff_t>(input_count(call.plan));
  Stack stack;
  if (call.plan.takes_cpu_tensors)  // core would copy those to the device first
    stack = stand_ins(
        call, input_count(call.plan), at::Device(at::kPrivateUse1, call.device), [&](const at::Tensor& tensor) {
          return tensor.is_cpu() ? empty_strided(tensor.sizes(), tensor.strides(), tensor.scalar_type(), call.device)
                                 : tensor;
        });
  else
    stack.assign(call.arguments.begin(), call.arguments.begin() + count);
  call.plan.structured->callBoxedForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional, stack);
  return stack;
}

bool is_not_implemented(const std::exception& error) {
  // What a Meta kernel written in Python raises arrives as text.
  return dynamic_cast<const c10::NotImplementedError*>(&error) != nullptr ||
         std::string_view(error.what()).find("NotImplementedError") != std::string_view::npos ||
         std::string_view(error.what()).find("DataDependent") != std::string_view::npos;
}

// Meta did not accept the arguments. Whether CPU would, and if not, with which words it refuses, is found out by running
// it on zeros: the call itself must not wait for the stream.
void rehearse(const Call& call, std::int64_t most_elements) {
  std::int64_t elements = 0;
  for (const CallTensor& t : call.tensors) elements += t.tensor->numel();
  if (elements > most_elements) {
    if (at::globalContext().deterministicAlgorithms()) rehearse_small(call);  // an op that is not says so first
    return;
  }
  Stack stack = stand_ins(call, call.arguments.size(), at::Device(at::kCPU), zeros_on_cpu);
  const KernelState state(at::get_num_threads());
  call.plan.op.callBoxed(stack);
}

// One element, 1, in as many dimensions; none if the tensor has none.
at::Tensor one_on_cpu(const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.dim() == 0) return tensor;
  c10::SmallVector<std::int64_t, 6> sizes(tensor.sizes().begin(), tensor.sizes().end());
  for (std::int64_t& size : sizes) size = std::min<std::int64_t>(size, 1);
  const at::Tensor result = at::detail::empty_cpu(sizes, tensor.scalar_type());
  result.fill_(1);
  if (tensor.is_conj()) result._set_conj(true);
  if (tensor.is_neg()) result._set_neg(true);
  return result;
}

struct Silence final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

// What holds for any number of elements: whether the dtypes will do, and whether the algorithm.
bool is_about_the_op(std::string_view text) {
  constexpr std::array<std::string_view, 4> words = {"dtype", "scalar type", "not implemented for",
                                                     "does not have a deterministic implementation"};
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

// Runs the Meta kernel of `op`, which takes the first `count` arguments. `tensors`: the stand-ins of the call's tensors.
Stack ask_meta(const Call& call, const c10::OperatorHandle& op, std::size_t count, std::vector<at::Tensor>& tensors) {
  Stack stack = stand_ins(call, count, at::Device(at::kMeta),
                          [&](const at::Tensor& tensor) { return tensors.emplace_back(on_meta(tensor)); });
  try {
    const KernelState state(at::get_num_threads());
    op.callBoxedForDispatchKey(DispatchKey::Meta, stack);
    return stack;
  } catch (const std::exception& error) {
    if (is_not_implemented(error)) throw NotInferable();
  }
  rehearse(call, 1 << 26);
  throw NotInferable();
}

// --- putting it together ---

void check_dtype(const OpPlan& plan, at::ScalarType computed, const at::Tensor& out) {
  static constexpr std::array<std::string_view, 7> exact = {"aten::mm.out",      "aten::addmm.out", "aten::bmm.out",
                                                            "aten::baddbmm.out", "aten::addmv.out", "aten::triu.out",
                                                            "aten::tril.out"};
  const at::ScalarType given = out.scalar_type();
  if (computed == given) return;
  if (plan.is_pointwise) {
    TORCH_CHECK(c10::canCast(computed, given), "result type ", computed, " can't be cast to the desired output type ",
                given);
  } else if (std::find(exact.begin(), exact.end(), plan.name) != exact.end()) {
    TORCH_CHECK(false, "Expected out tensor to have dtype ", c10::scalarTypeToTypeMeta(computed), ", but got ",
                c10::scalarTypeToTypeMeta(given), " instead");
  }
}

void note_resize(Shapes& shapes, const ResultShape& wanted, at::IntArrayRef has, int argument) {
  if (!wanted.defined || wanted.shape.sizes_arrayref() == has) return;
  shapes.resizes.push_back(wanted);
  shapes.resizes.back().argument = argument;
}

// From what the i-th result of the op without outputs would be to what that output of `call` lacks.
void compare_output(const Call& call, std::size_t i, const ResultShape& wanted, Shapes& shapes) {
  const std::size_t at = input_count(call.plan) + i;
  const IValue& argument = call.arguments[at];
  if (!argument.isTensor() || !argument.toTensor().defined()) return;
  if (wanted.defined) check_dtype(call.plan, wanted.dtype, argument.toTensor());
  note_resize(shapes, wanted, argument.toTensor().sizes(), static_cast<int>(at));
}

void compare_outputs(const Call& call, const Stack& results, Shapes& shapes) {
  for (std::size_t i = 0; i < results.size(); ++i) compare_output(call, i, shape_of(results[i].toTensor()), shapes);
}

// The strides that core's iteration gives a result: Meta kernels written in Python do not always say the same.
void use_strides_of_iteration(const Call& call, const std::vector<at::Tensor>& inputs, ResultShape& result) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .check_all_same_device(false)
      .declare_static_dtype_and_device(result.dtype, at::Device(at::kMeta))
      .add_owned_output(at::Tensor());
  for (const at::Tensor& input : inputs) config.add_owned_const_input(input);
  const at::TensorIterator iteration = config.build();
  if (iteration.output().sizes() == result.shape.sizes_arrayref() && !call.tensors.empty())
    result.shape.set_strides(iteration.output().strides());
}

void take_fresh(const OpPlan& plan, const Stack& results, Shapes& shapes) {
  for (std::size_t i = 0; i < plan.returns.size(); ++i) {
    if (plan.returns[i] != fresh) continue;
    if (results[i].isNone()) {
      shapes.fresh.emplace_back();
      continue;
    }
    shapes.fresh.push_back(shape_of(results[i].toTensor()));
  }
}

constexpr std::size_t need_weights = 10;  // of _native_multi_head_attention
constexpr std::size_t output_mask = 9;    // of batch_norm_backward

// Whether roll moves one dimension, and not by whole turns.
bool rolls_one_dimension(const Call& call) {
  const at::Tensor& self = call.arguments[0].toTensor();
  const IValue &shifts = call.arguments[1], &dims = call.arguments[2];
  if (!shifts.isIntList() || !dims.isIntList() || dims.toIntList().size() != 1 || shifts.toIntList().size() != 1)
    return false;
  const std::int64_t size = self.dim() == 0 ? 0 : self.size(dims.toIntList().get(0));
  return size > 0 && shifts.toIntList().get(0) % size != 0;
}

// Ops whose CPU kernels give their result the memory format of their first argument, and whose Meta kernels do not. For
// max_unpool2d it is more than speed: where two elements go to one place, the layout decides which comes last.
constexpr std::array<std::string_view, 9> format_keeping_names = {
    "aten::max_unpool2d",     "aten::reflection_pad2d",  "aten::replication_pad2d",
    "aten::reflection_pad3d", "aten::replication_pad3d", "aten::native_channel_shuffle",
    "aten::pixel_shuffle",    "aten::pixel_unshuffle",   "aten::channel_shuffle"};

// Where CPU's results have another form than Meta says.
void correct(const Call& call, Shapes& shapes) {
  const std::string& name = call.plan.op.operator_name().name;
  if (shapes.fresh.size() == 1 &&
      std::find(format_keeping_names.begin(), format_keeping_names.end(), name) != format_keeping_names.end()) {
    const auto format = call.arguments[0].toTensor().suggest_memory_format();
    shapes.fresh[0] = in_format(shapes.fresh[0].shape.sizes_arrayref().vec(), shapes.fresh[0].dtype, format);
  } else if (name == "aten::roll" && shapes.fresh.size() == 1 && rolls_one_dimension(call)) {
    // By a concatenation of two parts; in other cases by steps whose results are contiguous.
    shapes.fresh[0] = in_format(shapes.fresh[0].shape.sizes_arrayref().vec(), shapes.fresh[0].dtype,
                                call.arguments[0].toTensor().suggest_memory_format());
  } else if (name == "aten::batch_norm_backward" || name == "aten::native_batch_norm_backward") {
    for (std::size_t i = 0; i < shapes.fresh.size(); ++i)
      if (!call.arguments[output_mask].toListRef()[i].toBool()) shapes.fresh[i] = ResultShape();
  } else if (name == "aten::_native_multi_head_attention" && shapes.fresh.size() == 2 &&
             !call.arguments[need_weights].toBool()) {
    shapes.fresh[1] = ResultShape();
  }
}

// Outputs of a pointwise op have the shape that its inputs broadcast to; no need to ask when all have it already.
bool is_plainly_right(const Call& call) {
  if (!call.plan.is_pointwise || call.plan.fresh_count != 0 || call.tensors.empty()) return false;
  const at::Tensor* out = nullptr;
  for (const CallTensor& t : call.tensors)
    if (t.written) out = t.tensor;
  if (out == nullptr || !c10::isFloatingType(out->scalar_type())) return false;
  return std::all_of(call.tensors.begin(), call.tensors.end(), [&](const CallTensor& t) {
    return t.tensor->scalar_type() == out->scalar_type() && t.on_device && t.tensor->sizes() == out->sizes();
  });
}

// Core's checks of the indices of index_put: as many dimensions as there are, masks of their sizes.
void check_masks(const Call& call) {
  const at::Tensor* self = nullptr;
  std::int64_t at = 0, position = -1;
  for (const CallTensor& t : call.tensors) {
    if (self == nullptr) self = t.tensor;
    if (call.plan.arguments[static_cast<std::size_t>(t.argument)].type != ArgumentType::optional_tensor_list) continue;
    const bool mask = is_mask(*t.tensor);
    const std::int64_t dims = mask ? t.tensor->dim() : 1;
    // Indices that are None take a dimension each.
    const auto list = call.arguments[static_cast<std::size_t>(t.argument)].toListRef();
    for (++position; position < static_cast<std::int64_t>(list.size()); ++position, ++at) {
      const IValue& element = list[static_cast<std::size_t>(position)];
      if (element.isTensor() && element.toTensor().defined()) break;
    }
    TORCH_CHECK_INDEX(at + dims <= self->dim(), "too many indices for tensor of dimension ", self->dim());
    for (std::int64_t i = 0; mask && i < dims; ++i)
      TORCH_CHECK_INDEX(t.tensor->size(i) == self->size(at + i), "The shape of the mask ", t.tensor->sizes(),
                        " at index ", i, " does not match the shape of the indexed tensor ", self->sizes(),
                        " at index ", at + i);
    at += dims;
  }
}

// An in-place op whose Meta kernel would let its result have another shape.
void check_in_place_shape(const Call& call) {
  const CallTensor* out = nullptr;
  std::vector<std::int64_t> sizes;
  for (const CallTensor& t : call.tensors) {
    if (t.written) out = &t;
    sizes = at::infer_size(sizes, t.tensor->sizes());
  }
  TORCH_CHECK(out == nullptr || out->tensor->sizes() == at::IntArrayRef(sizes), "output with shape ",
              out->tensor->sizes(), " doesn't match the broadcast shape ", sizes);
}

Shapes infer_shapes(const Call& call) {
  const OpPlan& plan = call.plan;
  Shapes shapes;
  if (plan.is_pointwise)
    for (const CallTensor& t : call.tensors)
      if (t.written) at::assert_no_internal_overlap(*t.tensor);
  if (is_plainly_right(call)) return shapes;
  if (plan.is_pointwise && plan.first_out < 0 && plan.fresh_count == 0 && !plan.writes_lists)
    check_in_place_shape(call);
  if (plan.shape_rule != nullptr && plan.shape_rule(call, shapes)) {
    if (plan.is_pointwise && shapes.fresh.size() == 1) {
      std::vector<at::Tensor> inputs;
      for (const CallTensor& t : call.tensors) inputs.push_back(on_meta(*t.tensor));
      use_strides_of_iteration(call, inputs, shapes.fresh[0]);
    }
    return shapes;
  }
  if (Shapes results; plan.functional_rule != nullptr && plan.functional_rule(call, results)) {
    for (std::size_t i = 0; i < results.fresh.size(); ++i) compare_output(call, i, results.fresh[i], shapes);
    return shapes;
  }
  if (plan.structured.has_value()) {
    try {
      const Stack results = ask_structured(call);
      if (plan.first_out >= 0)
        compare_outputs(call, results, shapes);
      else
        take_fresh(plan, results, shapes);
      correct(call, shapes);
      return shapes;
    } catch (const NotInferable&) {
      // A few of core's shape functions touch the output; their Meta kernels do not.
      if (!plan.op.hasKernelForDispatchKey(DispatchKey::Meta)) throw;
    }
  }
  if (plan.rehearses) {
    // On zeros a mask would choose nothing: what it chooses is the kernel's to say.
    if (call.has_mask) {
      check_masks(call);
      rehearse_small(call);
    } else {
      rehearse(call, 1 << 16);
    }
  }
  std::vector<at::Tensor> tensors;
  if (plan.functional.has_value() && plan.functional->hasKernelForDispatchKey(DispatchKey::Meta)) {
    compare_outputs(call, ask_meta(call, *plan.functional, input_count(plan), tensors), shapes);
    return shapes;
  }
  const Stack results = ask_meta(call, plan.op, call.arguments.size(), tensors);
  take_fresh(plan, results, shapes);
  if (plan.is_pointwise && shapes.fresh.size() == 1 && shapes.fresh[0].defined)
    use_strides_of_iteration(call, tensors, shapes.fresh[0]);
  correct(call, shapes);
  for (std::size_t i = 0; i < call.tensors.size(); ++i) {
    const CallTensor& t = call.tensors[i];
    if (t.written) note_resize(shapes, shape_of(tensors[i]), t.tensor->sizes(), t.argument);
  }
  return shapes;
}

Shapes find_shapes(const Call& call) {
  const at::DisableRecordFunctionGuard unseen;  // a profile shows the call alone
  Shapes shapes = infer_shapes(call);
  if (call.plan.rehearses_small) rehearse_small(call);
  return shapes;
}

// --- the memory ---

struct Entry {
  c10::SmallVector<std::uint64_t, 32> key;
  std::shared_ptr<const Shapes> shapes;
};

constexpr std::size_t entry_count = 1024;
using Entries = std::array<Entry, entry_count>;

std::uint64_t hash_of(at::ArrayRef<std::uint64_t> words) noexcept {
  std::uint64_t hash = words.size();
  for (const std::uint64_t word : words) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 29;
  }
  return hash;
}

Entry& entry_for(const Call& call) {
  static thread_local std::unique_ptr<Entries> entries;
  if (C10_UNLIKELY(entries == nullptr)) entries = std::make_unique<Entries>();
  return (*entries)[hash_of(call.key) % entry_count];
}

}  // namespace

void rehearse_small(const Call& call) {
  const at::DisableRecordFunctionGuard unseen;  // a profile shows the call alone
  Stack stack = stand_ins(call, call.arguments.size(), at::Device(at::kCPU), one_on_cpu);
  for (std::size_t i = 0; i < stack.size(); ++i)  // no number is taken from a generator that anybody knows
    if (call.plan.arguments[i].type == ArgumentType::generator) stack[i] = at::make_generator<at::CPUGeneratorImpl>();
  const KernelState state(at::get_num_threads());
  Silence silence;  // the call itself warns
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  try {
    call.plan.op.callBoxed(stack);
  } catch (const std::exception& error) {
    // Whether another op takes one element says nothing.
    if (call.plan.is_pointwise || call.plan.rehearses_always || is_about_the_op(error.what())) throw;
  }
}

std::shared_ptr<const Shapes> shapes_of(const Call& call) {
  constexpr std::size_t longest_key = 4096;
  {
    const Entry& entry = entry_for(call);
    if (entry.key.size() == call.key.size() &&
        std::memcmp(entry.key.data(), call.key.data(), call.key.size() * sizeof(std::uint64_t)) == 0)
      return entry.shapes;
  }
  std::shared_ptr<const Shapes> shapes;
  try {
    shapes = std::make_shared<Shapes>(find_shapes(call));
  } catch (const NotInferable&) {
    auto unknown = std::make_shared<Shapes>();
    unknown->known = false;
    shapes = std::move(unknown);
  }
  if (call.key.size() <= longest_key) {
    // Not kept over find_shapes, which may come back here.
    Entry& entry = entry_for(call);
    entry.key.assign(call.key.begin(), call.key.end());
    entry.shapes = shapes;
  }
  return shapes;
}

}  // namespace mojo::ops
