#include "ops/engine_task.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/List.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "torch_backend/generator.h"

namespace mojo::ops {

namespace {

using c10::IValue;

// Finds the first of the tensors so far that has a storage: by comparing them while they are few, with a table for the
// long lists of an optimizer's step.
class FirstWithStorage {
 public:
  // The index of the first with this storage; `index` itself if it is that.
  std::size_t operator()(const void* storage, std::size_t index) {
    if (seen_.size() < few) {
      for (const auto& [known, first] : seen_)
        if (known == storage) return first;
      seen_.emplace_back(storage, index);
      return index;
    }
    if (table_.empty()) table_.insert(seen_.begin(), seen_.end());
    return table_.emplace(storage, index).first->second;
  }

 private:
  static constexpr std::size_t few = 16;
  c10::SmallVector<std::pair<const void*, std::size_t>, few> seen_;
  std::unordered_map<const void*, std::size_t> table_;
};

// A kernel may leave its output another form than it got: strides, a lazy bit, another storage. The device tensor has
// the form that the caller saw, so the values go there.
void settle(const at::Tensor& alias, const TensorDescriptor& descriptor) {
  if (!descriptor.has_form_of(alias)) as_cpu(descriptor).copy_(alias.clone());
}

class Collector final : public c10::WarningHandler {
 public:
  explicit Collector(std::vector<c10::Warning>& warnings) : warnings_(warnings) {}
  void process(const c10::Warning& warning) override { warnings_.push_back(warning); }

 private:
  std::vector<c10::Warning>& warnings_;
};

}  // namespace

TaskOwner<OpTask> OpTask::make(const Call& call, torch::jit::Stack& stack) {
  void* const block = allocate_task(sizeof(OpTask));
  TaskOwner<OpTask> task(new (block) OpTask(call.plan));
  task->run = [](CpuTask& self) { static_cast<OpTask&>(self).run_on_worker(); };
  task->destroy = [](CpuTask& self) noexcept { static_cast<OpTask&>(self).~OpTask(); };
  task->name = call.plan.name.c_str();
  task->bytes = sizeof(OpTask);
  const std::size_t first = stack.size() - call.arguments.size();
  for (std::size_t i = 0; i < call.arguments.size(); ++i)
    task->add(stack[first + i], call.plan.arguments[i], call.device);
  return task;
}

void OpTask::add_tensor(const at::Tensor& tensor, bool written) {
  Tensor& entry = tensors_.emplace_back();
  entry.written = written;
  if (!tensor.defined()) return;
  entry.descriptor = tensor.is_cpu() ? TensorDescriptor::holding(tensor) : TensorDescriptor(tensor, written);
}

void OpTask::add(IValue& value, const Argument& argument, c10::DeviceIndex device) {
  Slot& slot = slots_.emplace_back();
  if (value.isTensor()) {
    slot.kind = Kind::tensor;
    add_tensor(value.toTensor(), argument.written);
    return;
  }
  switch (argument.type) {
    case ArgumentType::tensor_list:
    case ArgumentType::optional_tensor_list:
      if (!value.isList()) break;
      slot.kind = argument.type == ArgumentType::tensor_list ? Kind::tensor_list : Kind::optional_tensor_list;
      slot.value = static_cast<std::int64_t>(value.toListRef().size());
      for (const IValue& element : value.toListRef())
        add_tensor(element.isTensor() ? element.toTensor() : at::Tensor(), argument.written);
      return;
    case ArgumentType::generator: {
      const auto given = value.isNone() ? std::nullopt : std::optional(value.toGenerator());
      slot.kind = Kind::generator;
      slot.value = static_cast<std::int64_t>(torch_backend::reserve_call_seed(given, device));
      return;
    }
    case ArgumentType::device:
      if (value.isDevice()) slot.value = at::Device(at::kCPU);
      return;
    case ArgumentType::pin_memory: return;
    default: break;
  }
  slot.value = std::move(value);
}

void OpTask::add_out_argument(const at::Tensor& tensor) {
  slots_.emplace_back().kind = Kind::tensor;
  add_tensor(tensor, true);
  tensors_.back().fresh = true;
}

void OpTask::add_result(const at::Tensor& tensor) {
  results_.push_back(tensor.defined() ? TensorDescriptor(tensor) : TensorDescriptor());
}

void OpTask::enqueue(TaskOwner<OpTask> task, DeviceStream stream, const c10::OperatorHandle& op) {
  task->op_ = &op;
  c10::SmallVector<Access, 8> accesses;
  for (const Tensor& tensor : task->tensors_) {
    const Access access = tensor.descriptor.access(tensor.written);
    if (access.ptr) accesses.push_back(access);
  }
  for (const TensorDescriptor& result : task->results_) {
    const Access access = result.access(true);
    if (access.ptr) accesses.push_back(access);
  }
  enqueue_task(stream, std::move(task), {accesses.data(), accesses.size()});
}

void OpTask::run_on_worker() {
  // Tensors of one storage get aliases of one storage, so that core's checks see that they overlap.
  c10::SmallVector<at::Tensor, 5> aliases;
  FirstWithStorage first_with;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const TensorDescriptor& descriptor = tensors_[i].descriptor;
    const void* const storage = descriptor.storage();
    const std::size_t first = storage == nullptr ? i : first_with(storage, i);
    aliases.push_back(first != i ? as_cpu(descriptor, aliases[first].storage())
                                 : as_cpu(descriptor, waited_ != nullptr));
  }
  // The default dtype is the process's, and the caller may have changed it since.
  if (default_dtype_ != c10::get_default_dtype_as_scalartype() && gives_default_dtype())
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (!tensors_[i].written && aliases[i].defined() && !tensors_[i].descriptor.wrapped_number())
        aliases[i] = aliases[i].to(default_dtype_);

  torch::jit::Stack stack;
  stack.reserve(slots_.size());
  std::size_t next = 0;
  for (Slot& slot : slots_) {
    switch (slot.kind) {
      case Kind::value: stack.push_back(std::move(slot.value)); break;
      case Kind::tensor: stack.emplace_back(aliases[next++]); break;
      case Kind::tensor_list: {
        c10::List<at::Tensor> list;
        const std::int64_t count = slot.value.toInt();
        list.reserve(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i) list.push_back(aliases[next++]);
        stack.emplace_back(std::move(list));
        break;
      }
      case Kind::optional_tensor_list: {
        c10::List<std::optional<at::Tensor>> list;
        for (std::int64_t i = 0, count = slot.value.toInt(); i < count; ++i, ++next)
          list.push_back(aliases[next].defined() ? std::optional(aliases[next]) : std::nullopt);
        stack.emplace_back(std::move(list));
        break;
      }
      case Kind::generator:
        stack.emplace_back(at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(slot.value.toInt())));
        break;
    }
  }
  if (waited_ == nullptr) {
    call(stack, aliases);
    return;
  }
  // The caller raises it at the call: nothing is kept on the stream.
  Collector collector(waited_->warnings);
  const c10::WarningUtils::WarningHandlerGuard guard(&collector);
  try {
    if (plan_.value_check != nullptr) plan_.value_check(stack);
    op_->callBoxed(stack);
    waited_->values = std::move(stack);
    // The written arguments follow: the caller looks whether they have another shape now.
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].written) continue;
      if (aliases[i].defined() && aliases[i].sizes() == tensors_[i].descriptor.sizes())
        settle(aliases[i], tensors_[i].descriptor);
      waited_->values.emplace_back(aliases[i]);
    }
  } catch (...) {
    waited_->error = std::current_exception();
  }
  waited_->ran = true;
}

bool OpTask::gives_default_dtype() const {
  if (op_->operator_name().name == "aten::where") return false;  // its first argument chooses, whatever the dtype
  // A dtype that the caller asks for is no default.
  const auto& arguments = op_->schema().arguments();
  for (std::size_t i = 0; i < std::min(arguments.size(), slots_.size()); ++i)
    if (arguments[i].name() == "dtype" && !slots_[i].value.isNone()) return false;
  const auto is_default = [&](const TensorDescriptor& result) {
    return !result.defined() || c10::toRealValueType(result.dtype()) == default_dtype_;
  };
  return std::all_of(tensors_.begin(), tensors_.end(),
                     [&](const Tensor& t) {
                       if (t.written) return t.fresh && is_default(t.descriptor);
                       return !t.descriptor.defined() || t.descriptor.wrapped_number() ||
                              c10::isIntegralType(t.descriptor.dtype(), /*includeBool=*/true);
                     }) &&
         std::all_of(results_.begin(), results_.end(), is_default);
}

void OpTask::call(torch::jit::Stack& stack, at::ArrayRef<at::Tensor> aliases) {
  if (plan_.value_check != nullptr) plan_.value_check(stack);
  op_->callBoxed(stack);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].written || !aliases[i].defined()) continue;
    TORCH_CHECK(aliases[i].sizes() == tensors_[i].descriptor.sizes(), "mojo backend: ", plan_.name,
                " gave an output of shape ", aliases[i].sizes(), ", expected was ", tensors_[i].descriptor.sizes());
    settle(aliases[i], tensors_[i].descriptor);
  }
  if (!results_.empty()) copy_results(stack);
}

void OpTask::copy_results(torch::jit::Stack& stack) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < plan_.returns.size(); ++i) {
    if (plan_.returns[i] != fresh) continue;
    const TensorDescriptor& expected = results_[next++];
    if (!expected.defined()) continue;
    const at::Tensor result = stack[i].isTensor() ? stack[i].toTensor() : at::Tensor();
    TORCH_CHECK(result.defined(), "mojo backend: ", plan_.name, " gave nothing for result ", i,
                ", where a tensor of shape ", expected.sizes(), " was expected");
    TORCH_CHECK(result.sizes() == expected.sizes() && result.scalar_type() == expected.dtype(),
                "mojo backend: ", plan_.name, " gave a result of shape ", result.sizes(), " and dtype ",
                result.scalar_type(), ", expected was ", expected.sizes(), " and ", expected.dtype());
    as_cpu(expected).copy_(result);
  }
}

}  // namespace mojo::ops
