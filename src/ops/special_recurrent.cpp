// Cells of LSTM and GRU. Core takes the fused cells on every device type like ours, and CPU has none: CPU's own cells are
// compositions of these same steps.
#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/SmallVector.h>

#include <initializer_list>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/factories.h"
#include "ops/host_alias.h"
#include "ops/op_counter.h"
#include "ops/same_device.h"
#include "ops/special.h"
#include "torch_backend/current.h"

namespace mojo::ops {

namespace {

using OptionalTensor = std::optional<at::Tensor>;

const at::Tensor& or_none(const OptionalTensor& tensor) {
  static const at::Tensor none;
  return tensor.has_value() ? *tensor : none;
}

at::Tensor empty_of(at::IntArrayRef sizes, const at::Tensor& like) {
  return empty_contiguous(sizes, like.scalar_type(), like.device().index());
}

TensorDescriptor reading(const at::Tensor& tensor) {
  return tensor.defined() ? TensorDescriptor(tensor, false) : TensorDescriptor();
}
TensorDescriptor reading(const OptionalTensor& tensor) {
  return tensor.has_value() ? reading(*tensor) : TensorDescriptor();
}

c10::SmallVector<Access, 10> accesses_of(std::initializer_list<const TensorDescriptor*> read,
                                         std::initializer_list<const TensorDescriptor*> written) {
  c10::SmallVector<Access, 10> result;
  for (const TensorDescriptor* t : read)
    if (const Access access = t->access(false); access.ptr) result.push_back(access);
  for (const TensorDescriptor* t : written)
    if (const Access access = t->access(true); access.ptr) result.push_back(access);
  return result;
}

template <class F>
void enqueue(const at::Tensor& on, OpCounter& counter, const c10::SmallVector<Access, 10>& accesses, F&& work) {
  enqueue_cpu_task(torch_backend::current_stream(on.device().index()), counter.name(), std::forward<F>(work),
                   {accesses.data(), accesses.size()});
  counter.queued();
}

constinit OpCounter fused_lstm_cell_counter{"aten::_thnn_fused_lstm_cell"};
constinit OpCounter fused_lstm_cell_backward_counter{"aten::_thnn_fused_lstm_cell_backward_impl"};
constinit OpCounter fused_gru_cell_counter{"aten::_thnn_fused_gru_cell"};
constinit OpCounter fused_gru_cell_backward_counter{"aten::_thnn_fused_gru_cell_backward"};

at::Tensor biased(const TensorDescriptor& gates, const TensorDescriptor& bias) {
  return bias.defined() ? as_cpu(gates) + as_cpu(bias) : as_cpu(gates);
}

// The workspace holds the gates after their activations: input, forget, cell, output.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                                         const at::Tensor& cx, const OptionalTensor& input_bias,
                                                         const OptionalTensor& hidden_bias) {
  check_same_device({&input_gates, &hidden_gates, &cx, &or_none(input_bias), &or_none(hidden_bias)});
  at::Tensor hy = empty_of(cx.sizes(), cx), cy = empty_of(cx.sizes(), cx),
             workspace = empty_of(input_gates.sizes(), cx);
  const TensorDescriptor ig = reading(input_gates), hg = reading(hidden_gates), c = reading(cx),
                         ib = reading(input_bias), hb = reading(hidden_bias), to_h(hy), to_c(cy), to_w(workspace);
  enqueue(cx, fused_lstm_cell_counter, accesses_of({&ig, &hg, &c, &ib, &hb}, {&to_h, &to_c, &to_w}), [=] {
    const std::vector<at::Tensor> gates = (biased(ig, ib) + biased(hg, hb)).chunk(4, 1),
                                  kept = as_cpu(to_w).chunk(4, 1);
    at::Tensor in = kept[0], forget = kept[1], cell = kept[2], out = kept[3], next = as_cpu(to_c), state = as_cpu(to_h);
    at::sigmoid_out(in, gates[0]);
    at::sigmoid_out(forget, gates[1]);
    at::tanh_out(cell, gates[2]);
    at::sigmoid_out(out, gates[3]);
    next.copy_(forget * as_cpu(c) + in * cell);
    at::mul_out(state, out, next.tanh());
  });
  return {hy, cy, workspace};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const OptionalTensor& grad_hy,
                                                                  const OptionalTensor& grad_cy, const at::Tensor& cx,
                                                                  const at::Tensor& cy, const at::Tensor& workspace,
                                                                  bool has_bias) {
  const bool any = (grad_hy.has_value() && grad_hy->defined()) || (grad_cy.has_value() && grad_cy->defined());
  if (!any) return {};
  check_same_device({&workspace, &cx, &cy, &or_none(grad_hy), &or_none(grad_cy)});
  at::Tensor grad_gates = empty_of(workspace.sizes(), workspace), grad_cx = empty_of(cx.sizes(), cx), grad_bias;
  if (has_bias) grad_bias = empty_of({workspace.size(1)}, workspace);
  const TensorDescriptor gh = reading(grad_hy), gc = reading(grad_cy), c = reading(cx), next = reading(cy),
                         w = reading(workspace), to_gates(grad_gates), to_cx(grad_cx),
                         to_bias = has_bias ? TensorDescriptor(grad_bias) : TensorDescriptor();
  enqueue(cx, fused_lstm_cell_backward_counter, accesses_of({&gh, &gc, &c, &next, &w}, {&to_gates, &to_cx, &to_bias}),
          [=] {
            const std::vector<at::Tensor> gates = as_cpu(w).chunk(4, 1), grads = as_cpu(to_gates).chunk(4, 1);
            const at::Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
            const at::Tensor tanh_cy = as_cpu(next).tanh();
            at::Tensor grad_c = gc.defined() ? as_cpu(gc).clone() : at::zeros_like(tanh_cy);
            if (gh.defined()) {
              const at::Tensor grad_h = as_cpu(gh);
              grad_c.add_(grad_h * out * (1 - tanh_cy * tanh_cy));
              grads[3].copy_(grad_h * tanh_cy * out * (1 - out));
            } else {
              grads[3].zero_();
            }
            grads[0].copy_(grad_c * cell * in * (1 - in));
            grads[1].copy_(grad_c * as_cpu(c) * forget * (1 - forget));
            grads[2].copy_(grad_c * in * (1 - cell * cell));
            as_cpu(to_cx).copy_(grad_c * forget);
            if (to_bias.defined()) as_cpu(to_bias).copy_(as_cpu(to_gates).sum(0));
          });
  return {grad_gates, grad_cx, grad_bias};
}

// The workspace holds what backward needs: reset, update, new, the old state, the hidden part of new.
std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                            const at::Tensor& hx, const OptionalTensor& input_bias,
                                            const OptionalTensor& hidden_bias) {
  check_same_device({&input_gates, &hidden_gates, &hx, &or_none(input_bias), &or_none(hidden_bias)});
  at::Tensor hy = empty_of(hx.sizes(), hx), workspace = empty_of({hx.size(0), 5 * hx.size(1)}, hx);
  const TensorDescriptor ig = reading(input_gates), hg = reading(hidden_gates), h = reading(hx),
                         ib = reading(input_bias), hb = reading(hidden_bias), to_h(hy), to_w(workspace);
  enqueue(hx, fused_gru_cell_counter, accesses_of({&ig, &hg, &h, &ib, &hb}, {&to_h, &to_w}), [=] {
    const std::vector<at::Tensor> input = biased(ig, ib).chunk(3, 1), hidden = biased(hg, hb).chunk(3, 1),
                                  kept = as_cpu(to_w).chunk(5, 1);
    const at::Tensor reset = (input[0] + hidden[0]).sigmoid_(), update = (input[1] + hidden[1]).sigmoid_();
    const at::Tensor fresh_state = (input[2] + hidden[2] * reset).tanh_(), state = as_cpu(h);
    as_cpu(to_h).copy_((state - fresh_state) * update + fresh_state);
    kept[0].copy_(reset);
    kept[1].copy_(update);
    kept[2].copy_(fresh_state);
    kept[3].copy_(state);
    kept[4].copy_(hidden[2]);
  });
  return {hy, workspace};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> gru_cell_backward(const at::Tensor& grad_hy,
                                                                                         const at::Tensor& workspace,
                                                                                         bool has_bias) {
  check_same_device({&workspace, &grad_hy});
  const std::int64_t batch = workspace.size(0), size = workspace.size(1) / 5;
  at::Tensor grad_input = empty_of({batch, 3 * size}, workspace), grad_hidden = empty_of({batch, 3 * size}, workspace),
             grad_hx = empty_of({batch, size}, workspace), grad_input_bias, grad_hidden_bias;
  if (has_bias) {
    grad_input_bias = empty_of({3 * size}, workspace);
    grad_hidden_bias = empty_of({3 * size}, workspace);
  }
  const TensorDescriptor g = reading(grad_hy), w = reading(workspace), to_input(grad_input), to_hidden(grad_hidden),
                         to_hx(grad_hx), to_ib = has_bias ? TensorDescriptor(grad_input_bias) : TensorDescriptor(),
                         to_hb = has_bias ? TensorDescriptor(grad_hidden_bias) : TensorDescriptor();
  enqueue(workspace, fused_gru_cell_backward_counter,
          accesses_of({&g, &w}, {&to_input, &to_hidden, &to_hx, &to_ib, &to_hb}), [=] {
            const std::vector<at::Tensor> kept = as_cpu(w).chunk(5, 1);
            const at::Tensor &reset = kept[0], &update = kept[1], &fresh_state = kept[2], &state = kept[3],
                             &hidden = kept[4];
            const at::Tensor grad = as_cpu(g);
            const at::Tensor to_new = grad * (1 - update) * (1 - fresh_state * fresh_state);
            const at::Tensor to_update = grad * (state - fresh_state) * update * (1 - update);
            const at::Tensor to_reset = to_new * hidden * reset * (1 - reset);
            as_cpu(to_input).copy_(at::cat({to_reset, to_update, to_new}, 1));
            as_cpu(to_hidden).copy_(at::cat({to_reset, to_update, to_new * reset}, 1));
            as_cpu(to_hx).copy_(grad * update);
            if (to_ib.defined()) as_cpu(to_ib).copy_(as_cpu(to_input).sum(0));
            if (to_hb.defined()) as_cpu(to_hb).copy_(as_cpu(to_hidden).sum(0));
          });
  return {grad_input, grad_hidden, grad_hx, grad_input_bias, grad_hidden_bias};
}

}  // namespace

void register_recurrent(torch::Library& library) {
  library.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  library.impl("_thnn_fused_lstm_cell_backward_impl", TORCH_FN(lstm_cell_backward));
  library.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  library.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace mojo::ops
