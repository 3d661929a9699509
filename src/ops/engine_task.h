// What it is: OpTask, one call of an operator on its way to a worker: descriptors of its tensors, its other arguments, and
//   how to run it on CPU aliases of them.
// Ordering: see task.h. Threads: made on the calling thread, run and destroyed on a worker; holds no reference to a
//   tensor, storage or generator of the caller.
// Errors: what the CPU kernel throws; a kernel that would change the shape of an output throws.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "ops/engine_call.h"
#include "ops/host_alias.h"
#include "ops/task.h"

namespace mojo::ops {

// Where a caller that waits finds what its task gave. Shared, since the caller may be thrown out of its wait.
struct WaitedResults {
  torch::jit::Stack values;            // with CPU tensors
  std::vector<c10::Warning> warnings;  // which the worker could only print
  std::exception_ptr error;
  bool ran = false;
};

class OpTask : public CpuTask {
 public:
  // `stack` holds the call's arguments at its end; values that are not tensors are moved out of it.
  static TaskOwner<OpTask> make(const Call& call, torch::jit::Stack& stack);

  // Enqueues; the task runs `op`.
  static void enqueue(TaskOwner<OpTask> task, DeviceStream stream, const c10::OperatorHandle& op);

  // An output that the CPU kernel gets as a further argument.
  void add_out_argument(const at::Tensor& tensor);
  // A tensor that the i-th fresh result is copied into; undefined: the result is dropped.
  void add_result(const at::Tensor& tensor);
  // The results go to `results`; outputs may change their shape, in memory of their own.
  void give_results_to(std::shared_ptr<WaitedResults> results) { waited_ = std::move(results); }

 private:
  enum class Kind : std::uint8_t { value, tensor, tensor_list, optional_tensor_list, generator };
  struct Slot {
    c10::IValue value;  // of a list its length, of a generator its seed
    Kind kind = Kind::value;
  };
  struct Tensor {
    TensorDescriptor descriptor;
    bool written = false;
    bool fresh = false;  // an output that the engine has made
  };

  explicit OpTask(const OpPlan& plan) : plan_(plan) {}
  void add(c10::IValue& value, const Argument& argument, c10::DeviceIndex device);
  void add_tensor(const at::Tensor& tensor, bool written);
  void run_on_worker();
  void call(torch::jit::Stack& stack, at::ArrayRef<at::Tensor> aliases);
  void copy_results(torch::jit::Stack& stack);
  // Whether the results, all new, have the default dtype for want of another: all that the kernel gets is integral.
  bool gives_default_dtype() const;

  const OpPlan& plan_;
  const c10::OperatorHandle* op_ = nullptr;
  const at::ScalarType default_dtype_ = c10::get_default_dtype_as_scalartype();  // the caller's
  std::shared_ptr<WaitedResults> waited_;
  c10::SmallVector<Slot, 10> slots_;
  c10::SmallVector<Tensor, 5> tensors_;
  c10::SmallVector<TensorDescriptor, 1> results_;
};

}  // namespace mojo::ops
