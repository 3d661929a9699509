#include "runtime/copy/staging.h"

#include "runtime/device_state.h"
#include "runtime/pinned_memory.h"

namespace mojo::runtime {
namespace {

// Drops the parts whose operations are complete; the lock is the caller's.
void drop_complete(detail::StreamState& stream) noexcept {
  if (stream.staged == nullptr) return;
  const std::uint64_t completed = stream.completed();
  while (!stream.staged->empty() && stream.staged->front().number <= completed) {
    stream.staged_bytes -= stream.staged->front().bytes;
    stream.staged->pop_front();
  }
}

bool fits(detail::StreamState& stream, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(stream.staging_mutex);
  if (stream.staged_bytes + bytes <= stream.device().staging_bytes()) return true;
  drop_complete(stream);
  return stream.staged_bytes + bytes <= stream.device().staging_bytes();
}

}  // namespace

Status acquire_staging(detail::StreamState& stream, std::uint64_t bytes, memory::PinnedAllocation& out) noexcept {
  if (!fits(stream, bytes)) {
    // A query may learn of progress that the bound does not know of; only then is there something to wait for.
    bool complete = false;
    MOJO_RETURN_IF_ERROR(stream.query(complete));
    if (!fits(stream, bytes)) MOJO_RETURN_IF_ERROR(stream.wait_idle());
  }
  return PinnedMemory::instance().allocate(stream.device(), bytes, out);
}

void release_staging(detail::StreamState& stream, const memory::PinnedAllocation& part, std::uint64_t bytes,
                     std::uint64_t number) noexcept {
  auto& allocator = PinnedMemory::instance().allocator();
  if (number != 0) {
    // If there is no host memory to note the use in, it is over before the part goes back.
    if (!allocator.record_use(part.block, {stream.uid(), number}).ok()) static_cast<void>(stream.wait_idle());
    const std::lock_guard lock(stream.staging_mutex);
    if (stream.staged == nullptr) stream.staged = new std::deque<detail::StreamState::Staged>;
    drop_complete(stream);
    stream.staged->push_back({number, bytes});
    stream.staged_bytes += bytes;
  }
  static_cast<void>(allocator.free(part.block));
}

}  // namespace mojo::runtime
