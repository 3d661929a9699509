#include "mojo/copy_plan.h"

namespace mojo {

CopyPlan plan_copy(const CopyRequest& request) noexcept {
  CopyPlan plan;
  const bool as_is = request.same_dtype && request.same_layout;
  switch (request.direction) {
    case CopyDirection::within_device:
    case CopyDirection::between_devices:
      return plan;  // queued; a conversion is part of the device's own copy operation

    case CopyDirection::host_to_device:
      if (!as_is) plan.conversion = CopyConversion::on_device_after;
      if (request.pinned && request.non_blocking) {
        // C-01: the copy reads the caller's memory when it runs. With one queue it is complete when it returns.
        plan.records_host_use = true;
        if (!request.device_reads_pinned_copies_async) plan.blocks = HostBlocks::until_complete;
        return plan;
      }
      if (!request.device_reads_pinned_copies_async) {
        plan.blocks = HostBlocks::until_complete;
        return plan;
      }
      // C-02, C-07: the caller may reuse its memory when the call returns, so it is staged, pinned or not.
      plan.transport = request.bytes > request.staging_bytes ? CopyTransport::staged_in_parts : CopyTransport::staged;
      if (plan.transport == CopyTransport::staged_in_parts) plan.blocks = HostBlocks::until_staged;
      return plan;

    case CopyDirection::device_to_host:
      if (!as_is) plan.conversion = CopyConversion::on_device_before;
      plan.records_host_use = request.pinned;
      if (request.pinned && request.non_blocking) return plan;  // C-03, C-06
      plan.blocks = HostBlocks::until_complete;                 // C-04, C-07
      if (!request.pinned && !request.host_accessible) {
        plan.transport = request.bytes > request.staging_bytes ? CopyTransport::staged_in_parts : CopyTransport::staged;
      }
      return plan;
  }
  return plan;
}

std::string describe(const CopyPlan& plan) {
  std::string text;
  switch (plan.transport) {
    case CopyTransport::direct: text = "direct"; break;
    case CopyTransport::staged: text = "staged"; break;
    case CopyTransport::staged_in_parts: text = "staged in parts"; break;
  }
  switch (plan.conversion) {
    case CopyConversion::none: text += ", no conversion"; break;
    case CopyConversion::on_device_before: text += ", converted on the device before"; break;
    case CopyConversion::on_device_after: text += ", converted on the device after"; break;
  }
  switch (plan.blocks) {
    case HostBlocks::no: text += ", does not block"; break;
    case HostBlocks::until_staged: text += ", blocks until staged"; break;
    case HostBlocks::until_complete: text += ", blocks until complete"; break;
  }
  return text;
}

}  // namespace mojo
