// What it is: what torch.autocast("mojo") does to each op: CUDA's policy, from torch's own lists.
// Ordering: casts are ops like others. Threads: registration once. Errors: c10::Error, if ops cannot be registered.
#pragma once

namespace mojo::torch_backend {

// Registers the casts; without them, autocast would be an error for every op.
void register_autocast();

}  // namespace mojo::torch_backend
