#include "ops/engine_overlap.h"

#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>

namespace mojo::ops {

namespace {

bool is_same(const CallTensor& a, const CallTensor& b) {
  return a.tensor->unsafeGetTensorImpl() == b.tensor->unsafeGetTensorImpl();
}

bool share_storage(const CallTensor& a, const CallTensor& b) {
  return a.on_device && b.on_device && a.tensor->storage().is_alias_of(b.tensor->storage());
}

}  // namespace

void check_pointwise_overlap(const Call& call) {
  for (const CallTensor& out : call.tensors) {
    if (!out.written) continue;
    for (const CallTensor& in : call.tensors)
      if (!in.written && !is_same(in, out) && share_storage(in, out))
        at::assert_no_partial_overlap(*out.tensor, *in.tensor);
  }
}

void check_output_not_read(const Call& call, const at::Tensor& out, at::IntArrayRef sizes) {
  for (const CallTensor& in : call.tensors)
    TORCH_CHECK(in.written || in.tensor->unsafeGetTensorImpl() != out.unsafeGetTensorImpl(), "output with shape ",
                out.sizes(), " doesn't match the broadcast shape ", sizes);
}

bool has_unusual_overlap(const Call& call) {
  const OpPlan& plan = call.plan;
  if (plan.is_pointwise || plan.writes_lists) return false;
  for (const CallTensor& out : call.tensors) {
    if (!out.written) continue;
    if (at::has_internal_overlap(*out.tensor) == at::MemOverlap::Yes) return true;
    for (const CallTensor& in : call.tensors) {
      if (in.written || !share_storage(in, out)) continue;
      if (is_same(in, out)) {
        if (!plan.distinct_outputs) continue;
        // Of an empty tensor the kernel sees two that share nothing.
        if (in.tensor->numel() == 0) at::assert_no_overlap(*out.tensor, *in.tensor);
        return true;
      }
      const at::MemOverlapStatus status = at::get_overlap_status(*out.tensor, *in.tensor);
      if (status == at::MemOverlapStatus::Full || status == at::MemOverlapStatus::Partial) return true;
    }
  }
  return false;
}

}  // namespace mojo::ops
