"""The native module. Indices are those of devices and must exist: RuntimeError otherwise."""

from typing import Any, final

import torch

torch_version_built_with: str

# Registration. Nothing in torch changes before.
def register_backend() -> None:
    """Registers name, guard, hooks and allocators; a second call does nothing. On an exception nothing has changed."""

def register_ops() -> None:
    """Registers the kernels of the process's driver; a second call does nothing."""

# The process.
def driver_name() -> str: ...
def settings() -> list[dict[str, str]]:
    """Each setting: name, value (in force), source, accepted, description."""

def check_settings() -> None:
    """RuntimeError for the first setting that does not parse."""

def unknown_settings() -> list[str]:
    """One text for each variable that looks like a setting and is none."""

def in_bad_fork() -> bool: ...
def shutting_down() -> bool: ...
def shut_down() -> None:
    """Stops the devices: running work ends, queued work is dropped. Registration has Python call it at exit."""

def cache_directory() -> str:
    """Where compiled device functions are kept; empty if they are not."""

def cache_statistics() -> dict[str, int]:
    """What this process did with the cache, and what the folder holds now."""

def cache_totals() -> dict[str, int]:
    """What all processes did since the folder was last cleared, and what it holds now."""

def clear_cache() -> int:
    """Removes the cache's files and counts; the number of files. RuntimeError for one that cannot be removed."""

def host_waits() -> int:
    """How often this thread has waited for a device, whether or not it had to block."""

def op_counts() -> dict[str, dict[str, Any]]:
    """For each op that queued work or made the host wait since the last reset: queued, waited (calls) and reason."""

def reset_op_counts() -> None: ...
def list_ops() -> list[tuple[str, str, str]]:
    """(name, service, reason) of each op of aten; the services are those of src/ops/op_list.h."""

# Devices.
def device_count() -> int: ...
def is_open(index: int) -> bool: ...
def device_properties(index: int) -> dict[str, Any]:
    """name, driver, total_memory, multiprocessor_count, major, minor, max_threads_per_block,
    max_shared_memory_per_block, warp_size. Opens the device."""

def has_feature(index: int, name: str) -> bool:
    """events, multiple_queues, host_functions, wait_values, peer_copies, host_accessible_memory,
    portable_pinned_memory, async_host_copies or launch. Opens the device."""

def set_option(index: int, name: str, value: str) -> None:
    """A switch of the driver; the device must be idle."""

def synchronize(index: int) -> None:
    """Blocks until the device's work is done, the interpreter's lock given up; does nothing if it is not open."""

def priority_range(index: int) -> tuple[int, int]:
    """(least, greatest)"""

# Streams, named by device and id.
def stream_priority(index: int, stream_id: int) -> int: ...
def native_handle(index: int, stream_id: int) -> int: ...
def stream_position(index: int, stream_id: int) -> int:
    """How many operations have been queued."""

def enqueue_delay(index: int, stream_id: int, nanoseconds: int) -> None: ...

@final
class Gate:
    """Holds what is queued on a stream from now on, until it is opened."""

    def __init__(self, index: int, stream_id: int) -> None: ...
    def open(self) -> None: ...
    @property
    def is_open(self) -> bool: ...
    @property
    def held(self) -> bool: ...

# Memory.
def memory_statistics(index: int) -> dict[str, Any]:
    """Nested, as torch.cuda.memory_stats_as_nested_dict; all zero if the device is not open."""

def memory_snapshot(index: int) -> list[dict[str, Any]]:
    """Segments (address, bytes, stream_id, large) with their blocks (address, bytes, requested_bytes, state: allocated,
    pending_free or inactive)."""

def memory_info(index: int) -> tuple[int, int]:
    """(free, total); opens the device."""

def set_memory_limit(index: int, bytes: int) -> None:
    """The most that may be reserved; 0 lifts the limit."""

def memory_limit(index: int) -> int: ...
def pinned_statistics() -> dict[str, Any]: ...
def reset_pinned_peak_statistics() -> None: ...
def reset_pinned_accumulated_statistics() -> None: ...

# Random numbers.
def default_generator(index: int) -> torch.Generator: ...
def manual_seed_all(seed: int) -> None: ...
