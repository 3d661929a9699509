// What it is: ops of the host device whose names CPU has no kernel for, or a kernel that does not fit: convolution, the
//   choice of an attention kernel, dropout, cells of recurrent networks.
// Ordering: each enqueues one task on the current stream of the device of its tensors.
// Threads: any. Errors: core's texts at the call; what a kernel finds is kept on the stream (O-08).
#pragma once

#include <torch/library.h>

namespace mojo::ops {

// convolution_overrideable, convolution_backward_overrideable.
void register_convolution(torch::Library& library);
// _fused_sdp_choice, and the same for core's scaled_dot_product_attention; _nested_tensor_from_mask_left_aligned.
void register_attention(torch::Library& library);
// native_dropout.
void register_dropout(torch::Library& library);
// _thnn_fused_lstm_cell, _thnn_fused_gru_cell and their backward.
void register_recurrent(torch::Library& library);
// mode.values.
void register_mode(torch::Library& library);

}  // namespace mojo::ops
