// What it is: the one boxed kernel that serves every op of ATen's CPU backend on the host device.
// Ordering: enqueues on the current stream of the device of the op's tensors. Ops whose result sizes depend on data
//   ("waited") block the host until that stream, and no other, has done its work.
// Threads: any. What is remembered of shapes is per thread; plans are shared and made once.
// Errors: argument errors at the call, with core's texts; errors of a kernel are kept on the stream (O-08).
#pragma once

#include <ATen/core/stack.h>

#include <string>
#include <vector>

namespace c10 {
class OperatorHandle;
struct OperatorName;
}  // namespace c10

namespace torch {
class Library;
}

namespace mojo::ops {

// The kernel. A backend fallback, and registered by name where core has a device-independent kernel that would give
// other values or make several tasks of one op.
void run_on_host_device(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Registers it in `fallback`, which implements every namespace, and in `aten`; leaves alone what `aten` has already.
// Gives the ops with which core would make a tensor of a layout that the device does not have without asking the device.
std::vector<std::string> register_engine(torch::Library& fallback, torch::Library& aten);

// Whether the op of aten had a kernel of its own when the engine was registered.
bool is_own_kernel(const c10::OperatorName& name);

}  // namespace mojo::ops
