#include "torch_backend/init.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <mutex>

#include "mojo/process.h"
#include "torch_backend/allocation_policy.h"
#include "torch_backend/autocast.h"
#include "torch_backend/current.h"
#include "torch_backend/device_allocator.h"
#include "torch_backend/errors.h"
#include "torch_backend/guard.h"
#include "torch_backend/hooks.h"
#include "torch_backend/host_allocator.h"

namespace mojo::torch_backend {

namespace {

// Everything that can be wrong is found before the first change. The name may be ours already: Python's
// rename_privateuse1_backend sets it too.
void check_place() {
  if (c10::is_privateuse1_backend_registered()) {
    const std::string name = c10::get_privateuse1_backend();
    TORCH_CHECK(name == backend_name, "mojo backend: torch has room for one out-of-tree backend and '", name,
                "' is already registered in this process: use one of the two");
  }
  TORCH_CHECK(!c10::impl::hasDeviceGuardImpl(device_type) && !at::isPrivateUse1HooksRegistered(),
              "mojo backend: another library has already registered its parts as torch's one out-of-tree backend in "
              "this process: use one of the two");
}

}  // namespace

void register_backend() {
  static std::mutex mutex;
  static bool registered = false;
  const std::lock_guard lock(mutex);
  if (registered) return;
  check_status(check_settings());
  device_count();  // chooses the driver
  check_place();
  check_status(set_allocation_policy(allocation_policy()));
  c10::register_privateuse1_backend(backend_name);
  c10::impl::registerDeviceGuard(device_type, device_guard());
  c10::SetAllocator(device_type, device_allocator());
  at::setHostAllocator(device_type, host_allocator());
  at::RegisterPrivateUse1HooksInterface(hooks());
  register_autocast();
  registered = true;
}

}  // namespace mojo::torch_backend
