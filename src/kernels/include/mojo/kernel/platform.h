// What it is: which compiler this is, and what the dialect is made of there: MOJO_KERNEL, MOJO_DEVICE, MOJO_SHARED,
//   integer names, where a thread is, the barrier.
// Ordering: barrier() orders the block's accesses before it, to shared and global memory, ahead of those after it.
// Threads: device code. Errors: none.
#pragma once

#if defined(__CUDACC_RTC__) || defined(__HIPCC_RTC__) || defined(__CUDACC__) || defined(__HIPCC__)
#define MOJO_ON_GPU 1
#else
#define MOJO_ON_GPU 0
#endif

namespace mojo {

using int8 = signed char;
using int16 = short;
using int32 = int;
using int64 = long long;
using uint8 = unsigned char;
using uint16 = unsigned short;
using uint32 = unsigned int;
using uint64 = unsigned long long;

enum Axis : int { x, y, z };

}  // namespace mojo

#if MOJO_ON_GPU
#include "mojo/kernel/platform_gpu.h"
#else
#include "mojo/kernel/platform_host.h"
#endif
