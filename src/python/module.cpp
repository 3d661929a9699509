// The Python module torch_mojo_backend._C: functions of the runtime and of the torch seam that Python needs and torch
// does not already carry. Thin: arguments in, results out. _C.pyi says what each does.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>

#include <cstdint>
#include <string>

#include "gate.h"
#include "mojo/cache.h"
#include "mojo/device_context.h"
#include "mojo/pinned.h"
#include "mojo/process.h"
#include "ops/op_counter.h"
#include "ops/op_list.h"
#include "ops/register.h"
#include "statistics.h"
#include "torch_backend/current.h"
#include "torch_backend/errors.h"
#include "torch_backend/generator.h"
#include "torch_backend/init.h"
#include "wait_hooks.h"

namespace mojo::python {

namespace py = pybind11;
using torch_backend::translated;

namespace {

c10::DeviceIndex checked(int index) {
  const c10::DeviceIndex count = torch_backend::device_count();
  if (index < 0 || index >= count) torch_backend::throw_device_out_of_range(index, count);
  return static_cast<c10::DeviceIndex>(index);
}

DeviceContext context(int index) { return torch_backend::context(checked(index)); }

DeviceStream stream(int index, std::int64_t id) {
  return torch_backend::from_c10(torch_backend::to_c10(checked(index), id));
}

// Once, at registration. Python's own exit comes before the C library's: work is stopped while the objects that it
// works on, and torch with them, are still whole.
void register_at_exit() {
  static const bool once = [] {
    py::module_::import("atexit").attr("register")(
        py::cpp_function([] { exit_python(py::module_::import("threading").attr("active_count")().cast<int>() > 1); }));
    return true;
  }();
  static_cast<void>(once);
}

Feature feature(const std::string& name) {
  if (name == "events") return Feature::events;
  if (name == "multiple_queues") return Feature::multiple_queues;
  if (name == "host_functions") return Feature::host_functions;
  if (name == "wait_values") return Feature::wait_values;
  if (name == "peer_copies") return Feature::peer_copies;
  if (name == "host_accessible_memory") return Feature::host_accessible_memory;
  if (name == "portable_pinned_memory") return Feature::portable_pinned_memory;
  if (name == "async_host_copies") return Feature::async_host_copies;
  if (name == "launch") return Feature::launch;
  throw py::value_error("mojo backend: no feature is called '" + name + "'");
}

py::dict properties(int index) {
  const DeviceProperties found = translated([&] { return context(index).properties(); });
  py::dict out;
  out["name"] = found.name;
  out["driver"] = found.driver;
  out["total_memory"] = found.total_memory;
  out["multiprocessor_count"] = found.multiprocessor_count;
  out["major"] = found.major;
  out["minor"] = found.minor;
  out["max_threads_per_block"] = found.max_threads_per_block;
  out["max_shared_memory_per_block"] = found.max_shared_memory_per_block;
  out["warp_size"] = found.warp_size;
  return out;
}

py::list setting_rows() {
  py::list out;
  for (const SettingInfo& setting : settings()) {
    py::dict row;
    row["name"] = setting.name;
    row["value"] = setting.value;
    row["source"] = setting.source;
    row["accepted"] = setting.accepted;
    row["description"] = setting.description;
    out.append(std::move(row));
  }
  return out;
}

void define_registration(py::module_& m) {
  m.def("register_backend", [] {
    torch_backend::register_backend();
    register_at_exit();
  });
  m.def("register_ops", [] { ops::register_ops(); });
  m.attr("torch_version_built_with") = MOJO_TORCH_VERSION;
}

void define_process(py::module_& m) {
  m.def("driver_name", [] { return translated([] { return DeviceContext::driver_name(); }); });
  m.def("settings", &setting_rows);
  m.def("check_settings", [] { torch_backend::check_status(check_settings()); });
  m.def("unknown_settings", [] { return unknown_settings(); });
  m.def("in_bad_fork", [] { return in_bad_fork(); });
  m.def("shutting_down", [] { return shutting_down(); });
  m.def("shut_down", [] { shut_down(); });
  m.def("cache_directory", [] { return cache_directory(); });
  m.def("cache_statistics", [] { return to_dict(cache_statistics()); });
  m.def("cache_totals", [] { return to_dict(cache_totals()); });
  m.def("clear_cache", [] {
    std::uint64_t removed = 0;
    torch_backend::check_status(clear_cache(&removed));
    return removed;
  });
  m.def("host_waits", [] { return host_waits(); });
  m.def("op_counts", [] {
    py::dict result;
    for (const ops::OpCount& count : ops::op_counts()) {
      py::dict entry;
      entry["queued"] = count.queued;
      entry["waited"] = count.waited;
      entry["reason"] = count.reason;
      result[py::str(count.name)] = entry;
    }
    return result;
  });
  m.def("reset_op_counts", [] { ops::reset_op_counts(); });
  m.def("list_ops", [] {
    py::list result;
    for (const ops::ListedOp& op : ops::list_ops()) result.append(py::make_tuple(op.name, op.service, op.reason));
    return result;
  });
}

void define_devices(py::module_& m) {
  m.def("device_count", [] { return static_cast<int>(torch_backend::device_count()); });
  m.def("is_open", [](int index) { return DeviceContext::is_open(checked(index)); });
  m.def("device_properties", &properties);
  m.def("has_feature", [](int index, const std::string& name) { return context(index).has(feature(name)); });
  m.def("set_option", [](int index, const std::string& name, const std::string& value) {
    translated([&] { context(index).set_option(name, value); });
  });
  m.def("synchronize", [](int index) {
    if (DeviceContext::is_open(checked(index))) translated([&] { context(index).synchronize(); });
  });
  m.def("priority_range", [](int index) {
    const PriorityRange range = context(index).priority_range();
    return py::make_tuple(range.least, range.greatest);
  });
}

void define_streams(py::module_& m) {
  m.def("stream_priority", [](int index, std::int64_t id) { return stream(index, id).priority(); });
  m.def("native_handle", [](int index, std::int64_t id) {
    return translated([&] { return reinterpret_cast<std::uintptr_t>(stream(index, id).native_handle()); });
  });
  m.def("stream_position", [](int index, std::int64_t id) { return stream(index, id).position(); });
  m.def("enqueue_delay", [](int index, std::int64_t id, std::uint64_t nanoseconds) {
    translated([&] { stream(index, id).enqueue_delay(nanoseconds); });
  });
  py::class_<Gate>(m, "Gate")
      .def(py::init([](int index, std::int64_t id) {
        return translated([&] { return std::make_unique<Gate>(stream(index, id)); });
      }))
      .def("open", [](const Gate& gate) { translated([&] { gate.open(); }); })
      .def_property_readonly("is_open", &Gate::is_open)
      .def_property_readonly("held", &Gate::held);
}

void define_memory(py::module_& m) {
  m.def("memory_statistics", [](int index) {
    if (!DeviceContext::is_open(checked(index))) return to_dict(MemoryStatistics{});
    return to_dict(translated([&] { return context(index).memory_statistics(); }));
  });
  m.def("memory_snapshot", [](int index) {
    if (!DeviceContext::is_open(checked(index))) return py::list();
    return to_list(translated([&] { return context(index).memory_snapshot(); }));
  });
  m.def("memory_info", [](int index) {
    const MemoryInfo info = translated([&] { return context(index).memory_info(); });
    return py::make_tuple(info.free, info.total);
  });
  m.def("set_memory_limit",
        [](int index, std::uint64_t bytes) { translated([&] { context(index).set_memory_limit(bytes); }); });
  m.def("memory_limit", [](int index) {
    return DeviceContext::is_open(checked(index)) ? context(index).memory_limit() : std::uint64_t{0};
  });
  m.def("pinned_statistics", [] { return to_dict(translated([] { return pinned_statistics(); })); });
  m.def("reset_pinned_peak_statistics", [] { pinned_reset_peak_statistics(); });
  m.def("reset_pinned_accumulated_statistics", [] { pinned_reset_accumulated_statistics(); });
}

void define_random(py::module_& m) {
  m.def("default_generator", [](int index) {
    return py::reinterpret_steal<py::object>(THPGenerator_Wrap(torch_backend::default_generator(checked(index))));
  });
  m.def("manual_seed_all", [](std::uint64_t seed) { torch_backend::manual_seed_all(seed); });
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  py::register_local_exception_translator(
      [](std::exception_ptr error) {  // NOLINT(performance-unnecessary-value-param): its type
        if (!error) return;
        try {
          std::rethrow_exception(error);
        } catch (const py::builtin_exception&) {
          throw;  // pybind11's own, which it turns into Python's itself
        } catch (...) {
          torch::translate_exception_to_python(std::current_exception());
        }
      });
  install_wait_hooks();
  define_registration(m);
  define_process(m);
  define_devices(m);
  define_streams(m);
  define_memory(m);
  define_random(m);
}

}  // namespace mojo::python
