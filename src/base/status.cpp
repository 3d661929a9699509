#include "mojo/status.h"

namespace mojo {

const char* status_code_name(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::ok: return "ok";
    case StatusCode::invalid_argument: return "invalid_argument";
    case StatusCode::out_of_range: return "out_of_range";
    case StatusCode::unsupported: return "unsupported";
    case StatusCode::failed_precondition: return "failed_precondition";
    case StatusCode::unavailable: return "unavailable";
    case StatusCode::out_of_memory: return "out_of_memory";
    case StatusCode::device_lost: return "device_lost";
    case StatusCode::forked: return "forked";
    case StatusCode::shut_down: return "shut_down";
    case StatusCode::task_failed: return "task_failed";
    case StatusCode::internal: return "internal";
  }
  return "unknown";
}

}  // namespace mojo
