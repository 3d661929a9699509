// What it is: torch's settings of allocators (PYTORCH_ALLOC_CONF), as the runtime takes them.
// Ordering: none. Threads: any.
// Errors: c10::ValueError in torch's words for a value that torch does not accept.
#pragma once

#include "mojo/allocation_policy.h"

namespace mojo::torch_backend {

// What applies to these allocators: max_split_size_mb, max_non_split_rounding_mb, roundup_power2_divisions and
// garbage_collection_threshold. The other keys are about what they do not have: segments of another size, expandable
// segments (memory is never mapped anew), threads and rounding of pinned memory (sizes are exact).
AllocationPolicy allocation_policy();

}  // namespace mojo::torch_backend
