#include "ops/engine.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <c10/core/DispatchKey.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/engine_call.h"
#include "ops/engine_overlap.h"
#include "ops/engine_plan.h"
#include "ops/engine_shapes.h"
#include "ops/engine_task.h"
#include "ops/factories.h"
#include "ops/resize.h"
#include "ops/shape_probe.h"
#include "torch_backend/current.h"
#include "torch_backend/errors.h"

namespace mojo::ops {

namespace {

using c10::DispatchKey;
using c10::IValue;
using torch::jit::Stack;

// Replaces the arguments at the end of `stack` by the results: written arguments, and `made` for those that are new.
void return_results(const OpPlan& plan, Stack& stack, at::ArrayRef<IValue> made) {
  const std::size_t count = plan.arguments.size(), first = stack.size() - count;
  if (plan.returns.size() == 1) {
    IValue result =
        plan.returns[0] == fresh ? made[0] : std::move(stack[first + static_cast<std::size_t>(plan.returns[0])]);
    stack.resize(first);
    stack.push_back(std::move(result));
    return;
  }
  c10::SmallVector<IValue, 4> results;
  std::size_t next = 0;
  for (const int source : plan.returns)
    results.push_back(source == fresh ? made[next++] : stack[first + static_cast<std::size_t>(source)]);
  stack.resize(first);
  for (IValue& result : results) stack.push_back(std::move(result));
}

void resize_outputs(const Call& call, const Shapes& shapes) {
  for (const ResultShape& wanted : shapes.resizes) {
    const at::Tensor& out = call.arguments[static_cast<std::size_t>(wanted.argument)].toTensor();
    if (call.plan.is_pointwise) check_output_not_read(call, out, wanted.shape.sizes_arrayref());
    // addr_ is addr.out on its own input, which is not broadcast then.
    TORCH_CHECK(call.plan.name != "aten::addr.out" ||
                    call.arguments[0].toTensor().unsafeGetTensorImpl() != out.unsafeGetTensorImpl(),
                "2D tensor expected, got ", out.dim(), "D tensor for input");
  }
  for (const ResultShape& wanted : shapes.resizes) {
    // A copy: a warning may run anything.
    const at::Tensor out = call.arguments[static_cast<std::size_t>(wanted.argument)].toTensor();
    const at::IntArrayRef sizes = wanted.shape.sizes_arrayref();
    if (at::native::resize_output(out, sizes))
      out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, wanted.shape.strides_arrayref());
  }
}

void run_queued(const OpPlan& plan, Call& call, Stack& stack, const Shapes* shapes) {
  if (shapes != nullptr && !shapes->resizes.empty()) resize_outputs(call, *shapes);
  if (plan.is_pointwise && plan.fresh_count == 0) check_pointwise_overlap(call);
  c10::SmallVector<IValue, 4> made;
  if (shapes != nullptr) {
    for (const ResultShape& fresh_shape : shapes->fresh) {
      if (fresh_shape.defined)
        made.emplace_back(empty_strided(fresh_shape.shape.sizes_arrayref(), fresh_shape.shape.strides_arrayref(),
                                        fresh_shape.dtype, call.device));
      else
        made.emplace_back(at::Tensor());
    }
  }
  TaskOwner<OpTask> task = OpTask::make(call, stack);
  for (const IValue& tensor : made) {
    if (plan.out_overload.has_value())
      task->add_out_argument(tensor.toTensor());
    else
      task->add_result(tensor.toTensor());
  }
  OpTask::enqueue(std::move(task), torch_backend::current_stream(call.device),
                  plan.out_overload.has_value() ? *plan.out_overload : plan.op);
  plan.counter.queued();
  return_results(plan, stack, made);
}

// `result`, a CPU tensor that nobody else knows, as a device tensor.
at::Tensor on_device(const OpPlan& plan, const at::Tensor& result, c10::DeviceIndex device, at::Tensor out = {}) {
  if (!result.defined()) return {};
  TORCH_CHECK_NOT_IMPLEMENTED(result.layout() == at::kStrided && !result.is_quantized(), "mojo backend: ", plan.name,
                              ": tensors of layout ", result.layout(), " are not supported on the device");
  if (!out.defined())
    out = result.is_non_overlapping_and_dense()
              ? empty_strided(result.sizes(), result.strides(), result.scalar_type(), device)
              : empty_contiguous(result.sizes(), result.scalar_type(), device);
  if (result.numel() != 0)
    enqueue_cpu_task(torch_backend::current_stream(device), plan.name.c_str(),
                     [to = TensorDescriptor(out), result] { as_cpu(to).copy_(result); });
  return out;
}

void run_waited(const OpPlan& plan, Call& call, Stack& stack, const char* reason) {
  const DeviceStream stream = torch_backend::current_stream(call.device);
  const auto results = std::make_shared<WaitedResults>();
  TaskOwner<OpTask> task = OpTask::make(call, stack);
  task->give_results_to(results);
  OpTask::enqueue(std::move(task), stream, plan.op);
  plan.counter.waited(reason);
  // Not synchronize: what failed before the op must not hide what became of it.
  torch_backend::translated([&] { stream.wait_until_idle(); });
  if (results->error) std::rethrow_exception(results->error);
  TORCH_CHECK(results->ran, "mojo backend: ", plan.name, " was dropped: the device has been shut down");

  for (const c10::Warning& warning : results->warnings) c10::warn(warning);
  Stack& values = results->values;
  const std::size_t return_count = plan.returns.size();
  c10::SmallVector<IValue, 4> made;
  for (std::size_t i = 0; i < return_count; ++i) {
    if (plan.returns[i] != fresh) continue;
    IValue& value = values[i];
    if (value.isTensor()) {
      made.emplace_back(on_device(plan, std::exchange(value, IValue()).toTensor(), call.device));
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(on_device(plan, tensor, call.device));
      made.emplace_back(std::move(list));
    } else {
      made.push_back(value);
    }
  }
  // Outputs that the kernel resized: the alias has memory of its own now.
  std::size_t next = return_count;
  for (const CallTensor& t : call.tensors) {
    if (!t.written) continue;
    const at::Tensor& alias = values[next++].toTensor();
    if (alias.sizes() == t.tensor->sizes()) continue;
    const at::Tensor out = *t.tensor;
    resize_in_place(out, alias.sizes());  // core's warning came from the kernel
    if (alias.is_non_overlapping_and_dense())
      out.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides());
    on_device(plan, alias, call.device, out);
  }
  if (stream.has_failure()) torch_backend::translated([&] { stream.synchronize(); });  // raises what failed before
  return_results(plan, stack, made);
}

// Core's kernel for any device, called back by ourselves to learn shapes, ends here with outputs that have them.
void answer_probe(const OpPlan& plan, Stack& stack) {
  if (plan.first_out < 0 || !plan.structured.has_value()) throw NotInferable();
  return_results(plan, stack, {});
}

// Kernels for any device, by core's account, that use one of CPU's directly.
constexpr std::array<const char*, 4> cpu_only_composites = {"conj_physical_", "kaiser_window", "kaiser_window.periodic",
                                                            "kaiser_window.beta"};

// What has a kernel of its own; written once, at registration.
std::vector<c10::OperatorName>& own_kernels() {
  static auto* const names = new std::vector<c10::OperatorName>;
  return *names;
}

[[noreturn]] void throw_missing(const OpPlan& plan) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run '", plan.name,
                              "' with arguments from the 'mojo' backend: the op has ",
                              "no kernel for the CPU, which does the host device's work");
}

// Why the call has to wait whatever its shapes are, or null.
const char* reason_to_wait(const OpPlan& plan, const Call& call) {
  if (plan.service == Service::waited) return plan.reason;
  if (plan.waits_for_masks && call.has_mask) return reason_masks;
  return has_unusual_overlap(call) ? reason_overlap : nullptr;
}

}  // namespace

void run_on_host_device(const c10::OperatorHandle& op, Stack* stack) {
  const OpPlan& plan = plan_of(op);
  if (C10_UNLIKELY(shape_probe())) {
    answer_probe(plan, *stack);
    return;
  }
  switch (plan.service) {
    case Service::queued:
    case Service::waited: break;
    case Service::on_caller: op.callBoxedForDispatchKey(DispatchKey::CPU, *stack); return;
    case Service::by_copies:
      plan.counter.waited(plan.reason);
      at::native::cpu_fallback(op, stack);
      return;
    case Service::refused:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "mojo backend: ", plan.name,
                                  ": sparse, quantized and nested tensors are not supported on the device");
    case Service::missing: throw_missing(plan);
  }
  Call call(plan, torch::jit::last(*stack, plan.arguments.size()));
  if (const char* const reason = reason_to_wait(plan, call); reason != nullptr) {
    run_waited(plan, call, *stack, reason);
    return;
  }
  if (plan.rehearses_always) {
    for (const CallTensor& t : call.tensors)
      if (t.written) at::assert_no_internal_overlap(*t.tensor);
    rehearse_small(call);
  }
  if (plan.shapes_fixed) {
    run_queued(plan, call, *stack, nullptr);
    return;
  }
  const std::shared_ptr<const Shapes> shapes = shapes_of(call);
  if (shapes->known)
    run_queued(plan, call, *stack, shapes.get());
  else
    run_waited(plan, call, *stack, reason_not_inferred);
}

std::vector<std::string> register_engine(torch::Library& fallback, torch::Library& aten) {
  std::vector<std::string> refused_composites;
  watch_registrations();
  fallback.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host_device>());
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value()) continue;
    if (op->hasKernelForDispatchKey(DispatchKey::PrivateUse1)) {
      own_kernels().push_back(name);
      continue;
    }
    // Where core has a device-independent kernel and CPU one of its own: the latter's values are the right ones, and one
    // op is one task.
    if (!is_composite(*op)) continue;
    const std::string full = full_name(name);
    const bool is_cpus = op->hasKernelForDispatchKey(DispatchKey::CPU) && plan_of(*op).service == Service::queued;
    const bool refused = is_refused(full);
    if (!is_cpus && !refused) continue;
    const std::string local = full.substr(std::string_view("aten::").size());
    aten.impl(local.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_host_device>());
    if (refused) refused_composites.push_back(local);
  }
  for (const char* name : cpu_only_composites)
    aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_host_device>());
  return refused_composites;
}

bool is_own_kernel(const c10::OperatorName& name) {
  const auto& names = own_kernels();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace mojo::ops
