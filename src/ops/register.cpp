#include "ops/register.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKey.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <string>
#include <utility>
#include <vector>

#include "ops/engine.h"
#include "ops/register_core.h"
#include "ops/special.h"

namespace mojo::ops {

namespace {

// Leaked: a registration ends with its library.
torch::Library& leaked_library(const char* name, c10::DispatchKey key) {
  return *new torch::Library(torch::Library::IMPL, name, key, __FILE__, __LINE__);
}

void refuse_layout(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "mojo backend: ", op.operator_name(),
                              ": sparse, quantized and nested tensors are not supported on the device");
}

}  // namespace

void register_ops() {
  static bool done = false;
  if (std::exchange(done, true)) return;
  torch::Library& aten = leaked_library("aten", c10::DispatchKey::PrivateUse1);
  register_core_ops(aten);
  register_convolution(aten);
  register_attention(aten);
  register_dropout(aten);
  register_recurrent(aten);
  register_mode(aten);
  const std::vector<std::string> refused = register_engine(leaked_library("_", c10::DispatchKey::PrivateUse1), aten);
  for (const c10::DispatchKey key :
       {c10::DispatchKey::SparsePrivateUse1, c10::DispatchKey::SparseCsrPrivateUse1,
        c10::DispatchKey::QuantizedPrivateUse1, c10::DispatchKey::NestedTensorPrivateUse1}) {
    leaked_library("_", key).fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
    torch::Library& makers = leaked_library("aten", key);  // core goes by the layout that is asked for
    for (const std::string& name : refused)
      makers.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&refuse_layout>());
  }
}

}  // namespace mojo::ops
