#include "drivers/host/launch.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

namespace mojo::host {
namespace {

Status invalid(const std::string& text) { return {StatusCode::invalid_argument, "host driver: launch: " + text}; }

std::string text_of(driver::Dim3 d) {
  return std::to_string(d.x) + " x " + std::to_string(d.y) + " x " + std::to_string(d.z);
}

// What is wrong with a grid or block that is not within its limit.
Status explain_extent(const char* what, driver::Dim3 d, driver::Dim3 limit) {
  if (d.x == 0 || d.y == 0 || d.z == 0) return invalid(std::string("a ") + what + " of " + text_of(d) + " is empty");
  if (d.x > limit.x || d.y > limit.y || d.z > limit.z) {
    return invalid(std::string("a ") + what + " of " + text_of(d) + " is beyond the device's limit of " +
                   text_of(limit));
  }
  return {};
}

bool is_within(driver::Dim3 d, driver::Dim3 limit) noexcept {  // 0 - 1 is beyond any limit
  return d.x - 1 < limit.x && d.y - 1 < limit.y && d.z - 1 < limit.z;
}

Status unsupported(const char* what) {
  return {StatusCode::unsupported, std::string("the host driver does not support launch with ") + what};
}

Status check(const driver::Launch& launch) {
  if (launch.kernel == nullptr) return invalid("no kernel");
  if (!is_within(launch.grid, max_grid)) return explain_extent("grid", launch.grid, max_grid);
  if (!is_within(launch.block, max_block)) return explain_extent("block", launch.block, max_block);
  const std::uint64_t threads = std::uint64_t{launch.block.x} * launch.block.y * launch.block.z;
  if (threads > max_block_threads) {
    return invalid("a block of " + text_of(launch.block) + " has " + std::to_string(threads) +
                   " threads; the device's limit is " + std::to_string(max_block_threads));
  }
  if (launch.shared_memory_bytes > max_shared_memory) {
    return invalid(std::to_string(launch.shared_memory_bytes) + " bytes of shared memory; the device's limit is " +
                   std::to_string(max_shared_memory));
  }
  const auto& c = launch.cluster;
  if (c.x != 1 || c.y != 1 || c.z != 1) return unsupported("a cluster");
  if (!launch.attributes.empty()) return unsupported("launch attributes");
  if (!launch.constants.empty()) return unsupported("constant memory mappings");

  if (launch.arguments.size() != launch.argument_sizes.size()) return invalid("arguments and sizes differ in number");
  std::uint64_t bytes = 0;
  for (std::uint32_t size : launch.argument_sizes) bytes += size;
  if (bytes > max_argument_bytes) {
    return invalid(std::to_string(bytes) + " bytes of arguments; the device's limit is " +
                   std::to_string(max_argument_bytes));
  }
  const MojoHostEntry& entry = static_cast<const HostKernel&>(*launch.kernel).entry;
  if (launch.arguments.size() != entry.argument_count) {
    return invalid(std::to_string(launch.arguments.size()) + " arguments; the kernel takes " +
                   std::to_string(entry.argument_count));
  }
  for (unsigned i = 0; i < entry.argument_count; ++i) {
    if (launch.argument_sizes[i] != entry.parameters[i].size) {
      return invalid("argument " + std::to_string(i) + " has " + std::to_string(launch.argument_sizes[i]) +
                     " bytes; the kernel's has " + std::to_string(entry.parameters[i].size));
    }
    if (launch.arguments[i] == nullptr) return invalid("argument " + std::to_string(i) + " is null");
  }
  return {};
}

void copy_extent(unsigned (&to)[3], driver::Dim3 from) noexcept {
  to[0] = from.x;
  to[1] = from.y;
  to[2] = from.z;
}

}  // namespace

bool LaunchState::take(std::uint64_t wanted, std::uint64_t& first, std::uint64_t& last) noexcept {
  std::uint64_t at = next_block.load(std::memory_order_relaxed);
  do {
    if (at >= blocks) return false;
    last = at + std::clamp<std::uint64_t>(wanted, 1, blocks - at);
  } while (!next_block.compare_exchange_weak(at, last, std::memory_order_relaxed));
  first = at;
  return true;
}

LaunchPool::~LaunchPool() {
  while (LaunchState* state = free_) {
    free_ = state->pool_next;
    delete state;
  }
}

LaunchState* LaunchPool::take() noexcept {
  {
    std::lock_guard guard(lock_);
    if (LaunchState* state = free_) {
      free_ = state->pool_next;
      if (free_ != nullptr) __builtin_prefetch(&free_->pool_next, 1);  // a worker wrote it last
      return state;
    }
  }
  return new (std::nothrow) LaunchState;
}

void LaunchPool::give(LaunchState* state) noexcept {
  state->image.reset();  // may unload it
  state->large_arguments.reset();
  std::lock_guard guard(lock_);
  state->pool_next = free_;
  free_ = state;
}

Status LaunchPool::prepare(const driver::Launch& launch, LaunchState*& out) noexcept {
  try {
    MOJO_RETURN_IF_ERROR(check(launch));
    std::uint32_t bytes = 0;
    for (std::uint32_t size : launch.argument_sizes) bytes += size;
    std::unique_ptr<unsigned char[]> large;
    if (bytes > LaunchState::inline_bytes) large = std::make_unique<unsigned char[]>(bytes);
    LaunchState* const state = take();
    if (state == nullptr) throw std::bad_alloc();

    const auto& kernel = static_cast<const HostKernel&>(*launch.kernel);
    state->image = kernel.image;
    state->entry = &kernel.entry;
    state->large_arguments = std::move(large);
    unsigned char* to = bytes > LaunchState::inline_bytes ? state->large_arguments.get() : state->inline_arguments;
    state->work = {};
    state->work.arguments = to;
    copy_extent(state->work.grid, launch.grid);
    copy_extent(state->work.block, launch.block);
    for (std::size_t i = 0; i < launch.arguments.size(); ++i) {
      std::memcpy(to, launch.arguments[i], launch.argument_sizes[i]);
      to += launch.argument_sizes[i];
    }
    state->shared_memory_bytes = launch.shared_memory_bytes;
    state->block_threads = launch.block.x * launch.block.y * launch.block.z;
    state->blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
    state->stacks = kernel.image->has_barrier() && state->block_threads > 1;
    state->next_block.store(0, std::memory_order_relaxed);
    state->helpers.store(0, std::memory_order_relaxed);
    state->no_help.store(false, std::memory_order_relaxed);
    state->refs.store(1, std::memory_order_relaxed);
    out = state;
    return {};
  } catch (const std::bad_alloc&) {
    return {StatusCode::out_of_memory, "host driver: no host memory for a launch"};
  }
}

}  // namespace mojo::host
