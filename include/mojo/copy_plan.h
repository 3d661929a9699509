// What it is: CopyPlan, the path that a copy between host and device takes, decided by one pure function.
// Ordering: the plan says whether the copy only enqueues on its stream, or also blocks the host, and until when.
// Threads: plain values. Errors: none.
#pragma once

#include <cstdint>
#include <string>

#include "mojo/export.h"

namespace mojo {

enum class CopyDirection : std::uint8_t { host_to_device, device_to_host, within_device, between_devices };

// What is known of a copy before it is made. `same_dtype` and `same_layout` compare source and destination:
// the bytes can be moved linearly only if both hold.
struct CopyRequest {
  CopyDirection direction = CopyDirection::within_device;
  std::uint64_t bytes = 0;    // of the destination
  bool pinned = false;        // the host side is this backend's pinned memory
  bool non_blocking = false;  // what the caller asked for
  bool same_dtype = true;
  bool same_layout = true;
  bool device_reads_pinned_copies_async = true;  // false on devices with one queue
  bool host_accessible = false;                  // host tasks may dereference device memory
  std::uint64_t staging_bytes = 256u << 20;      // the bound on staging memory a stream
};

// Where the elements are brought into the destination's dtype and layout.
enum class CopyConversion : std::uint8_t {
  none,
  on_device_before,  // the device makes a temporary in the destination's dtype and layout, then downloads it
  on_device_after,   // the source's bytes are uploaded as they are, the device converts
};

// How host memory is passed to the device.
enum class CopyTransport : std::uint8_t {
  direct,           // one queued copy from or to the caller's memory
  staged,           // through pinned chunks of the runtime, which hold the data when the call returns
  staged_in_parts,  // as staged, but larger than the bound: waits, for its own stream, until the last part is staged
};

enum class HostBlocks : std::uint8_t {
  no,              // the call only enqueues
  until_staged,    // waits for earlier parts of the same copy on the same stream
  until_complete,  // the stream's work up to and including the copy is complete
};

struct CopyPlan {
  CopyConversion conversion = CopyConversion::none;
  CopyTransport transport = CopyTransport::direct;
  HostBlocks blocks = HostBlocks::no;
  bool records_host_use = false;  // the pinned block must not be reused before the copy is done (C-11)
  friend bool operator==(const CopyPlan&, const CopyPlan&) = default;
};

// The table of docs/stream-ordering.md as a function (C-01 to C-07, C-12, A-03).
MOJO_API CopyPlan plan_copy(const CopyRequest& request) noexcept;
// One line for a person: "staged, no conversion, blocks: no".
MOJO_API std::string describe(const CopyPlan& plan);

}  // namespace mojo
