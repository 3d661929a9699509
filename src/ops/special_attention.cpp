// Attention: CPU's own choice between its fused kernel, which the engine queues as one task, and plain mathematics.
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>

#include <optional>

#include "ops/special.h"

namespace mojo::ops {

namespace {

// Looks at shapes, dtypes and settings only.
std::int64_t choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const std::optional<at::Tensor>& mask, double dropout, bool is_causal, std::optional<double> scale,
                    bool enable_gqa) {
  return at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout, is_causal, scale, enable_gqa);
}

}  // namespace

void register_attention(torch::Library& library) {
  library.impl("_fused_sdp_choice", TORCH_FN(choice));
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choice);
}

}  // namespace mojo::ops
