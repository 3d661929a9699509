// What it is: from a source in the dialect of device code to a kernel, by a driver alone, without the runtime.
// Ordering: none. Threads: the caller's. Errors: the Status of the first step that fails.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "jit/compile_cache.h"
#include "jit/dialect.h"

namespace mojo::test {

inline Status compile_source(driver::Device& device, jit::CompileCache& cache, const std::string& source,
                             const std::string& name, jit::CompiledImagePtr& image,
                             std::span<const std::string> options = {}) {
  driver::Compiler* compiler = nullptr;
  MOJO_RETURN_IF_ERROR(device.compiler(compiler));
  const std::vector<std::string> entries{name};
  driver::CompileRequest request;
  request.source = source;
  request.entries = entries;
  request.headers = jit::dialect_headers();
  request.options = options;
  return cache.get(*compiler, request, image);
}

inline Status compile_kernel(driver::Device& device, jit::CompileCache& cache, const std::string& source,
                             const std::string& name, std::unique_ptr<driver::Kernel>& out,
                             std::span<const std::string> options = {}) {
  jit::CompiledImagePtr image;
  MOJO_RETURN_IF_ERROR(compile_source(device, cache, source, name, image, options));
  std::unique_ptr<driver::Module> module;
  MOJO_RETURN_IF_ERROR(device.load_module(image->bytes, module));
  return module->kernel(name, out);
}

}  // namespace mojo::test
