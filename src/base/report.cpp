#include "base/report.h"

#include <cstdio>

namespace mojo::base {

void report(const char* where, const Status& status) noexcept {
  std::fprintf(stderr, "mojo: %s: %s (%s)\n", where, status.message().c_str(), status_code_name(status.code()));
}

}  // namespace mojo::base
