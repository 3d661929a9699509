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
  std::string cache_directory;               // of compiled functions; empty: off, or there is no home directory
  std::uint64_t cache_bytes = std::uint64_t{1} << 30;
  // The C++ compiler of the host device: a path or a name to look for. Empty: the preferred one ($CXX, which may also be a
  // command line that names no program) or any other.
  std::string host_compiler, preferred_host_compiler;
};

// One row of the table, for people and for the generated docs.
struct SettingRow {
  std::string name, value, source, accepted, description;
};

Status load_settings(Settings& out);
std::vector<SettingRow> setting_rows();

// Names in the environment that begin with TORCH_MOJO_BACKEND_ and are no setting: a text each, with the nearest name.
std::vector<std::string> unknown_setting_texts();

// The program of that name, as a shell would find it: an absolute path, or empty.
std::string find_program(std::string_view name);

// The environment for a compiler that is run: this process's, with the C locale, so that its output can be read, and
// without what would have it look in other places, of which nobody who knows its options would know.
std::vector<std::string> program_environment();

// Reads "random:SEED"; false unless it is exactly that.
bool parse_random_schedule(std::string_view text, std::uint64_t& seed) noexcept;

}  // namespace mojo::base
