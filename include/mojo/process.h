// What it is: what concerns the whole process: settings, waits, fork and exit.
// Ordering: none. Threads: any; set_wait_hooks once, before the first wait.
// Errors: as stated per function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mojo/allocation_policy.h"
#include "mojo/export.h"
#include "mojo/status.h"

namespace mojo {

// One setting (environment variable) of the table in src/base/env.
struct SettingInfo {
  std::string name;      // TORCH_MOJO_BACKEND_HOST_DEVICES
  std::string value;     // in force
  std::string source;    // "default" or "environment"
  std::string accepted;  // what it takes, for a person
  std::string description;
};

MOJO_API std::vector<SettingInfo> settings();
// invalid_argument for the first setting that does not parse, naming the setting, the value and what is accepted.
MOJO_API Status check_settings();
// One text for each TORCH_MOJO_BACKEND_* name in the environment that is no setting, with the nearest valid name.
MOJO_API std::vector<std::string> unknown_settings();

// How the devices opened from now on manage their memory. invalid_argument for a value out of range; failed_precondition
// if a device is already open under another policy.
MOJO_API Status set_allocation_policy(const AllocationPolicy& policy) noexcept;

// Called around every blocking wait of the library, on the waiting thread, so that a binding can release its
// interpreter's lock. `after` receives what `before` returned. Not called when there is nothing to wait for.
// `refused_at_exit` is called on a thread whose call is about to be refused because the process is exiting; it need not
// return: an interpreter that is going away may have no other safe place for such a thread.
struct WaitHooks {
  void* (*before)() noexcept = nullptr;
  void (*after)(void*) noexcept = nullptr;
  void (*refused_at_exit)() noexcept = nullptr;
};
MOJO_API void set_wait_hooks(WaitHooks hooks) noexcept;

// How often this thread has waited for the device in a call of the library, whether or not it had to block: the count does
// not depend on how fast the device was. For tests that a call does not wait.
MOJO_API std::uint64_t host_waits() noexcept;

// Whether this process was forked from one that had used a device: every call is refused here.
MOJO_API bool in_bad_fork() noexcept;
// Whether the library has begun to shut down at process exit.
MOJO_API bool shutting_down() noexcept;
// Stops the drivers now: running work ends, queued work is dropped, later calls get `shut_down`. Also run at exit.
MOJO_API void shut_down() noexcept;
// Whether this thread is inside a host task or host function, where the device API refuses calls.
MOJO_API bool in_host_task() noexcept;

}  // namespace mojo
