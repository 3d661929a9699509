// What it is: the device guard, through which torch switches devices and streams and works with streams and events.
// Ordering: as DeviceStream and DeviceEvent say; nothing is added here.
// Threads: the current device and streams are the calling thread's. Errors: c10::Error; destroyEvent,
//   uncheckedSetDevice and deviceCount never throw.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace mojo::torch_backend {

// The process's one guard; lives as long as the process.
const c10::impl::DeviceGuardImplInterface* device_guard() noexcept;

}  // namespace mojo::torch_backend
