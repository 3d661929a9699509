#include "drivers/host/cpu_features.h"

#include <sys/utsname.h>

#include <fstream>

namespace mojo::host {
namespace {

std::string look() {
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

}  // namespace

const std::string& cpu_features() {
  // Leaked on purpose: a thread may still compile while the process exits.
  static const auto* const features = new std::string(look());
  return *features;
}

}  // namespace mojo::host
