#include "drivers/host/cpu_features.h"

#include <sys/utsname.h>

#include <fstream>

namespace mojo::host {

std::string cpu_features() {
  utsname system{};
  std::string text = uname(&system) == 0 ? std::string(system.sysname) + " " + system.machine : "";
  // Model and features of the first processor; its clock and the like do not matter.
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line) && !line.empty();) {
    for (const char* field :
         {"vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU part", "CPU variant"}) {
      if (line.starts_with(field)) text += "\n" + line;
    }
  }
  return text;
}

}  // namespace mojo::host
