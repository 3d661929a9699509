#include "ops/register_core.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DispatchKey.h>

#include "ops/copy.h"
#include "ops/factories.h"
#include "ops/fill.h"
#include "ops/record_stream.h"
#include "ops/resize.h"
#include "ops/scalar.h"
#include "ops/views.h"

namespace mojo::ops {

namespace {

// Leaked: a registration ends with its library.
torch::Library* leaked_library(c10::DispatchKey key) {
  return new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
}

}  // namespace

void register_core_ops(torch::Library& library) {
  register_factories(library);
  register_ranges(library);
  register_views(library);
  register_set(library);
  register_resize(library);
  register_copies(library);
  register_fill(library);
  register_scalar(library);
  register_record_stream(library);

  // One clear error for the layouts that the device does not have.
  for (const c10::DispatchKey key : {c10::DispatchKey::SparsePrivateUse1, c10::DispatchKey::SparseCsrPrivateUse1})
    register_factories(*leaked_library(key));

  // Core resolves a lazy conj or neg bit before an op that does not say that it can do without, and for these two that
  // would be wrong: a copy would resolve its source by a copy, for ever, and lose what it writes into a lazy
  // destination; record_stream would copy the tensor. The copies look at the bits themselves.
  for (const c10::DispatchKey key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    torch::Library* const bits = leaked_library(key);
    bits->impl("_copy_from", torch::CppFunction::makeFallthrough());
    bits->impl("record_stream", torch::CppFunction::makeFallthrough());
  }
}

}  // namespace mojo::ops
