#include "driver/driver.h"

namespace mojo::driver {
namespace {
thread_local bool inside = false;
}

bool in_host_task() noexcept { return inside; }
HostTaskScope::HostTaskScope() noexcept : outer_(inside) { inside = true; }
HostTaskScope::~HostTaskScope() { inside = outer_; }

}  // namespace mojo::driver
