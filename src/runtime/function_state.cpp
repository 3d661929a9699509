#include "runtime/function_state.h"

#include <mutex>
#include <vector>

#include "mojo/process.h"

namespace mojo::detail {
namespace {

// Keeps what goes with the process where a search for leaks finds it.
void keep_for_ever(driver::Kernel* kernel) noexcept {
  static std::mutex mutex;
  static auto* const kept = new std::vector<driver::Kernel*>;
  try {
    const std::lock_guard lock(mutex);
    kept->push_back(kernel);
  } catch (const std::bad_alloc&) {
    // Kept all the same.
  }
}

}  // namespace

// In a forked child, and at exit, the driver is not to be called.
FunctionState::~FunctionState() {
  if (in_bad_fork()) {
    static_cast<void>(kernel_.release());
  } else if (shutting_down()) {
    keep_for_ever(kernel_.release());
  }
}

}  // namespace mojo::detail
