// What it is: where runtime and drivers are joined; neither knows the other otherwise.
#include "drivers/builtin.h"
#include "runtime/registry.h"

namespace mojo::runtime {

Status make_process_driver(const base::Settings& settings, std::unique_ptr<driver::Driver>& out) noexcept {
  return drivers::make_builtin(settings, out);
}

}  // namespace mojo::runtime
