// What it is: a layer that checks how the driver is used: addresses inside live segments of the right device, live
//   events and values, no double free, tags that grow, nothing left behind (a leak report when a device is destroyed).
// Ordering: none added. Threads: any. Errors: `invalid_argument` or `failed_precondition` saying which rule was broken,
//   and then the driver beneath is not called. A call on a destroyed Queue is beyond it; sanitizers find those.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "driver/driver.h"

namespace mojo::layers {

// Told, line by line, of what a device still had when it was destroyed; by default base::report.
using LeakReport = std::function<void(const std::string& line)>;

std::unique_ptr<driver::Driver> make_checked(std::unique_ptr<driver::Driver> inner, LeakReport on_leak = nullptr);

}  // namespace mojo::layers
