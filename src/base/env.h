// What it is: the one table of settings (environment variables TORCH_MOJO_BACKEND_*), and their parsed values.
// Ordering: none. Threads: reads the environment at each call; the runtime reads it once, when the driver is chosen.
// Errors: a value that does not parse gives invalid_argument naming the setting, the value and what is accepted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mojo/status.h"

namespace mojo::base {

// The settings in force, parsed.
struct Settings {
  std::string driver = "auto";  // auto, or a driver's name
  int host_devices = 1;
  std::uint64_t host_memory = 0;  // bytes a device; 0: three quarters of the machine's, divided
  bool host_single_queue = false;
  std::string host_schedule = "fifo";        // fifo, random:SEED
  int host_workers = 0;                      // 0: as many as processors, at least two
  std::uint64_t staging_bytes = 256u << 20;  // bound on staging memory a stream
  bool check_driver = false;                 // wrap the driver in the checking layer, scribble freed memory
};

// One row of the table, for people and for the generated docs.
struct SettingRow {
  std::string name, value, source, accepted, description;
};

Status load_settings(Settings& out);
std::vector<SettingRow> setting_rows();

// Names in the environment that begin with TORCH_MOJO_BACKEND_ and are no setting: a text each, with the nearest name.
std::vector<std::string> unknown_setting_texts();

// Reads "random:SEED"; false unless it is exactly that.
bool parse_random_schedule(std::string_view text, std::uint64_t& seed) noexcept;

}  // namespace mojo::base
