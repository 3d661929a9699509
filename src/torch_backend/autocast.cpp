#include "torch_backend/autocast.h"

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <optional>

namespace mojo::torch_backend {

namespace {

at::Tensor refuse_binary_cross_entropy(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                       std::int64_t) {
  TORCH_CHECK(false,
              "mojo backend: binary_cross_entropy is unsafe to autocast: its gradient overflows float16. Leave out the "
              "sigmoid before it and use binary_cross_entropy_with_logits or BCEWithLogitsLoss, which are safe");
}

#define MOJO_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define MOJO_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define MOJO_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define MOJO_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

void register_policies(torch::Library& m) {
  using namespace at;  // torch's lists spell signatures as within it
  AT_FORALL_LOWER_PRECISION_FP(MOJO_LOWER_PRECISION)
  AT_FORALL_FP32(MOJO_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(MOJO_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(MOJO_PROMOTE)
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

}  // namespace

void register_autocast() {
  // Leaked: a Library takes its registrations back when it is destroyed.
  static auto* const all =
      new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  static auto* const aten =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  static const bool once = [] {
    all->fallback(torch::CppFunction::makeFallthrough());
    register_policies(*aten);
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace mojo::torch_backend
