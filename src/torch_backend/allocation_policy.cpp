#include "torch_backend/allocation_policy.h"

#include <c10/core/AllocatorConfig.h>

#include <algorithm>

namespace mojo::torch_backend {

AllocationPolicy allocation_policy() {
  using Config = c10::CachingAllocator::AcceleratorAllocatorConfig;
  AllocationPolicy policy;
  policy.max_split_bytes = Config::max_split_size();  // the first question reads the environment
  policy.max_non_split_rounding = Config::max_non_split_rounding_size();
  policy.garbage_collection_threshold = Config::garbage_collection_threshold();
  const auto& steps = Config::roundup_power2_divisions();
  for (std::size_t i = 0; i < std::min(steps.size(), policy.power_of_two_steps.size()); ++i) {
    policy.power_of_two_steps[i] = static_cast<std::uint32_t>(steps[i]);
  }
  return policy;
}

}  // namespace mojo::torch_backend
