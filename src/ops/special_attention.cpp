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

// nn.TransformerEncoder asks whether it may pack padded sequences into a nested tensor, a layout that the device does not
// have: told no, it computes on the padded ones. (What CPU gives at padded places is zeros, then.)
bool may_be_nested(const at::Tensor&, const at::Tensor&) { return false; }

}  // namespace

void register_attention(torch::Library& library) {
  library.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(may_be_nested));
  library.impl("_fused_sdp_choice", TORCH_FN(choice));
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choice);
}

}  // namespace mojo::ops
