// What it is: the drivers that are built in, by name. The one place that names them.
// Ordering: none. Threads: any. Errors: Status; an unknown name lists the known ones.
#pragma once

#include <memory>

#include "base/env.h"
#include "driver/driver.h"

namespace mojo::drivers {

// The driver that `settings.driver` names; for "auto" the first that has a device, the host driver last.
Status make_builtin(const base::Settings& settings, std::unique_ptr<driver::Driver>& out) noexcept;

}  // namespace mojo::drivers
