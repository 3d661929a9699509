// What it is: Compiler, what turns the source of device functions into an image that Device::load_module takes.
// Ordering: none; nothing of it goes through a queue.
// Threads: any; several threads may compile at once. `compile` and the first `identity` may take seconds, and block.
// Errors: Status. `invalid_argument` is the source's fault, and its message holds the compiler's own text; other codes
//   (no compiler, no memory, no temporary file) are the machine's, and another call may succeed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mojo/status.h"

namespace mojo::driver {

// A header that the source may include under `name`, "mojo/kernel.h" for instance.
struct SourceHeader {
  std::string_view name, text;
};

struct CompileRequest {
  std::string_view source;
  std::string_view source_name = "kernel.cpp";  // what the compiler's messages call it
  std::span<const std::string> entries;         // names of the device functions that Module::kernel will be asked for
  std::span<const SourceHeader> headers;        // the first is included ahead of the source
  std::span<const std::string> options;         // the caller's, in order, after the driver's own
};

struct CompileResult {
  std::vector<std::byte> image;
  std::string log;  // what the compiler said, warnings for instance
  // It depends on more than request, identity and target, on files that the source includes for instance: good for this
  // call alone. So may a failure be.
  bool uncacheable = false;
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  // The exact compiler and all else besides request and target that an image depends on: two compilers of one identity
  // give interchangeable images. May have to run the compiler, once.
  virtual Status identity(std::string& out) noexcept = 0;
  // What the images run on: an architecture, with the features that are used.
  virtual Status target(std::string& out) noexcept = 0;
  // "shared object", "cubin", "code object"
  virtual const char* output_kind() const noexcept = 0;
  virtual Status compile(const CompileRequest& request, CompileResult& out) noexcept = 0;
};

}  // namespace mojo::driver
