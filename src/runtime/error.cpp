#include "mojo/error.h"

namespace mojo {

Error::~Error() = default;
DeviceLost::~DeviceLost() = default;
OutOfMemory::~OutOfMemory() = default;

void throw_status(const Status& status) {
  if (const auto cause = status.cause()) std::rethrow_exception(cause);
  switch (status.code()) {
    case StatusCode::out_of_memory: throw OutOfMemory(status);
    case StatusCode::device_lost: throw DeviceLost(status);
    default: throw Error(status);
  }
}

}  // namespace mojo
