#include "driver/driver.h"

namespace mojo::driver {

thread_local constinit bool inside_host_task = false;

}  // namespace mojo::driver
