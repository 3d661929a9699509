// What it is: what differs between the versions of torch that are supported (2.11 and later). The only place that asks.
// Ordering: none. Threads: none. Errors: none.
#pragma once

#include <torch/headeronly/version.h>

#define MOJO_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !MOJO_TORCH_AT_LEAST(2, 11)
#error "torch 2.11 or later is needed"
#endif

// DeviceGuardImplInterface::isStreamCapturing came with 2.12. Its default throws in some versions, so we have our own;
// in 2.11 the same method overrides nothing.
#if MOJO_TORCH_AT_LEAST(2, 12)
#define MOJO_TORCH_OVERRIDE_SINCE_2_12 override
#else
#define MOJO_TORCH_OVERRIDE_SINCE_2_12
#endif
