// What it is: the kernel dialect, all of it. Every source of device functions begins with it without saying so.
// Ordering: docs/kernels.md. Threads: device code. Errors: none.
//   The same source compiles with the host's C++ compiler, NVRTC and hipRTC. No standard header is used.
#pragma once

#include "mojo/kernel/platform.h"
// The platform first.
#include "mojo/kernel/atomic.h"
#include "mojo/kernel/buffer.h"
#include "mojo/kernel/float16.h"
#include "mojo/kernel/index.h"
#include "mojo/kernel/math.h"
#include "mojo/kernel/philox.h"
#include "mojo/kernel/reduce.h"
#include "mojo/kernel/vector.h"
