#include "ops/op_list.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKey.h>

#include "ops/engine.h"
#include "ops/engine_plan.h"

namespace mojo::ops {

namespace {

const char* name_of(Service service) {
  switch (service) {
    case Service::queued: return "queued";
    case Service::waited: return "waited";
    case Service::on_caller: return "on_caller";
    case Service::by_copies: return "by_copies";
    case Service::refused: return "refused";
    case Service::missing: return "missing";
  }
  return "";
}

ListedOp listed(const c10::OperatorHandle& op, std::string name) {
  if (is_own_kernel(op.operator_name())) return {std::move(name), "own", ""};
  if (!op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) && is_composite(op))
    return {std::move(name), "composite", ""};
  const OpPlan& plan = plan_of(op);
  return {std::move(name), name_of(plan.service), plan.waits_for_masks ? reason_masks : plan.reason};
}

}  // namespace

std::vector<ListedOp> list_ops() {
  auto& dispatcher = c10::Dispatcher::singleton();
  std::vector<ListedOp> result;
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.name.rfind("aten::", 0) != 0) continue;
    if (const auto op = dispatcher.findSchema(name); op.has_value()) result.push_back(listed(*op, full_name(name)));
  }
  return result;
}

}  // namespace mojo::ops
