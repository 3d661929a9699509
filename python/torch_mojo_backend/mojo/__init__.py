"""``torch.mojo``: the functions of the device type ``mojo`` under the names that torch's device modules use.

``torch.mojo`` and ``torch.accelerator`` are two views of one state: where both have a function, one calls the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Event, Generator, Stream

from torch_mojo_backend.mojo import _utils as _utils
from torch_mojo_backend.mojo._lifecycle import (
    _is_in_bad_fork as _is_in_bad_fork,
)
from torch_mojo_backend.mojo._lifecycle import (
    _lazy_call as _lazy_call,
)
from torch_mojo_backend.mojo._lifecycle import (
    _lazy_init as _lazy_init,
)
from torch_mojo_backend.mojo._lifecycle import (
    device_count,
    init,
    is_available,
    is_initialized,
)
from torch_mojo_backend.mojo.counters import OpCount, op_counts, reset_op_counts
from torch_mojo_backend.mojo.devices import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_of,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    is_bf16_supported,
    set_device,
)
from torch_mojo_backend.mojo.memory import (
    caching_allocator_alloc,
    caching_allocator_delete,
    empty_cache,
    get_per_process_memory_fraction,
    host_memory_stats,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from torch_mojo_backend.mojo.random import (
    _default_generators,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_mojo_backend.mojo.streams import (
    StreamContext,
    current_stream,
    default_stream,
    is_current_stream_capturing,
    priority_range,
    set_stream,
    stream,
    stream_priority,
    synchronize,
)
from torch_mojo_backend.mojo.streams import (
    _sleep as _sleep,
)

if TYPE_CHECKING:
    default_generators: tuple[Generator, ...]
    _initialized: bool


def __getattr__(name: str) -> Any:
    if name == "default_generators":
        return _default_generators()
    if name == "_initialized":  # torch.utils.checkpoint saves the generators' states only where it is true
        return is_initialized()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "DeviceProperties",
    "Event",
    "OpCount",
    "Stream",
    "StreamContext",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "can_device_access_peer",
    "current_device",
    "current_stream",
    "default_generators",
    "default_stream",
    "device",
    "device_count",
    "device_of",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "host_memory_stats",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "op_counts",
    "priority_range",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_op_counts",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "stream_priority",
    "synchronize",
]
