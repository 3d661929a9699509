// What it is: installs every op of the device in torch's dispatcher; a second call does nothing.
// Ordering: none; opens no device. Threads: once, under the lock of whoever registers the backend.
// Errors: c10::Error if another library implements aten for PrivateUse1.
#pragma once

#include "mojo/export.h"

namespace mojo::ops {

MOJO_API void register_ops();

}  // namespace mojo::ops
