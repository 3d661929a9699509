"""The caching allocator seen from Python, under the names of torch.cuda.

The figures are those of ``torch.accelerator``: the functions that both have call it, so that they cannot disagree.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from torch_mojo_backend import _C
from torch_mojo_backend._registration import DEVICE_TYPE
from torch_mojo_backend._units import with_unit
from torch_mojo_backend.mojo._lifecycle import is_initialized
from torch_mojo_backend.mojo._utils import DeviceLike, _get_device_index, _index_or_none


def empty_cache() -> None:
    """Returns cached memory that nothing uses to the driver. Safe while streams are busy."""
    torch.accelerator.empty_cache()


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """(free, total) bytes of a device. Opens it."""
    return torch.accelerator.get_memory_info(_get_device_index(device, optional=True))


def memory_stats(device: DeviceLike = None) -> OrderedDict[str, Any]:
    """All figures of the allocator, flat: ``allocated_bytes.all.peak`` and so on. Empty before the first use."""
    return torch.accelerator.memory_stats(_index_or_none(device))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """``memory_stats`` with a dictionary for each part of the names."""
    nested: dict[str, Any] = {}
    for key, value in memory_stats(device).items():
        *path, last = key.split(".")
        level = nested
        for part in path:
            level = level.setdefault(part, {})
        level[last] = value
    return nested


def memory_allocated(device: DeviceLike = None) -> int:
    """Bytes held by tensors."""
    return torch.accelerator.memory_allocated(_index_or_none(device))


def max_memory_allocated(device: DeviceLike = None) -> int:
    """The most bytes that tensors held since the start or the last reset of the peak."""
    return torch.accelerator.max_memory_allocated(_index_or_none(device))


def memory_reserved(device: DeviceLike = None) -> int:
    """Bytes taken from the device: held by tensors or cached."""
    return torch.accelerator.memory_reserved(_index_or_none(device))


def max_memory_reserved(device: DeviceLike = None) -> int:
    """The most bytes taken from the device since the start or the last reset of the peak."""
    return torch.accelerator.max_memory_reserved(_index_or_none(device))


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Makes the peaks what is current."""
    torch.accelerator.reset_peak_memory_stats(_index_or_none(device))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Sets the historical totals and the event counts to zero."""
    torch.accelerator.reset_accumulated_memory_stats(_index_or_none(device))


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """``reset_peak_memory_stats``, under an older name: it resets all peaks."""
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceLike = None) -> None:
    """``reset_peak_memory_stats``, under an older name: it resets all peaks."""
    reset_peak_memory_stats(device)


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limits what this process may take of a device's memory to a fraction of it, 0 to 1."""
    if not isinstance(fraction, (int, float)) or isinstance(fraction, bool):
        raise TypeError(f"expected a fraction between 0 and 1, got {fraction!r}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"expected a fraction between 0 and 1, got {fraction}")
    index = _get_device_index(device, optional=True)
    total = _C.device_properties(index)["total_memory"]
    # 0 would lift the limit.
    _C.set_memory_limit(index, max(1, int(total * fraction)))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """The fraction of a device's memory that this process may take; 1 where there is no limit."""
    index = _get_device_index(device, optional=True)
    limit = _C.memory_limit(index)
    return limit / _C.device_properties(index)["total_memory"] if limit else 1.0


_BLOCK_STATES = {"allocated": "active_allocated", "pending_free": "active_pending_free", "inactive": "inactive"}


def memory_snapshot(device: DeviceLike = None) -> list[dict[str, Any]]:
    """The segments and blocks of the allocator: those of one device, or of every device that has been used."""
    indices = range(_C.device_count()) if device is None else [_get_device_index(device, optional=True)]
    return [_segment(i, found) for i in indices if _C.is_open(i) for found in _C.memory_snapshot(i)]


def _segment(device: int, found: dict[str, Any]) -> dict[str, Any]:
    blocks = [
        {
            "address": block["address"],
            "size": block["bytes"],
            "requested_size": block["requested_bytes"],
            "state": _BLOCK_STATES[block["state"]],
            "frames": [],
        }
        for block in found["blocks"]
    ]

    def total(field: str, *states: str) -> int:
        return sum(block[field] for block in blocks if block["state"] in states)

    return {
        "device": device,
        "address": found["address"],
        "total_size": found["bytes"],
        "allocated_size": total("size", "active_allocated"),
        "active_size": total("size", "active_allocated", "active_pending_free"),
        "requested_size": total("requested_size", "active_allocated", "active_pending_free"),
        "stream": found["stream_id"],
        "segment_type": "large" if found["large"] else "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """The figures of the allocator as a table for a person; ``abbreviated`` leaves the two pools out."""
    index = _get_device_index(device, optional=True)
    stats = memory_stats(index)
    width = 75
    rule = "|" + "-" * width + "|"
    lines = [
        "|" + "=" * width + "|",
        "|" + f"memory of {DEVICE_TYPE}:{index}".center(width) + "|",
        rule,
        "|"
        + f" out of memory: {stats.get('num_ooms', 0)}, retried allocations: {stats.get('num_alloc_retries', 0)}, "
        f"segments taken: {stats.get('num_device_alloc', 0)}".ljust(width)
        + "|",
        rule,
        f"| {'':21} | {'current':>10} | {'peak':>10} | {'allocated':>10} | {'freed':>10} |",
    ]
    for metric, title, size in _SUMMARY_ROWS:
        lines.append(rule)
        for pool, name in (("all", title), ("large_pool", "  from large pool"), ("small_pool", "  from small pool")):
            if pool != "all" and abbreviated:
                continue
            figures = [stats.get(f"{metric}.{pool}.{part}", 0) for part in ("current", "peak", "allocated", "freed")]
            cells = " | ".join(f"{with_unit(figure) if size else figure:>10}" for figure in figures)
            lines.append(f"| {name:21} | {cells} |")
    lines.append("|" + "=" * width + "|")
    return "\n".join(lines) + "\n"


_SUMMARY_ROWS = (
    ("allocated_bytes", "allocated", True),
    ("active_bytes", "active", True),
    ("requested_bytes", "requested", True),
    ("reserved_bytes", "reserved", True),
    ("inactive_split_bytes", "not releasable", True),
    ("allocation", "allocations", False),
    ("active", "active blocks", False),
    ("segment", "segments", False),
    ("inactive_split", "not releasable blocks", False),
)


def host_memory_stats() -> OrderedDict[str, Any]:
    """The figures of the pinned host allocator, flat, under the names of torch.cuda. Empty before the first use."""
    if not is_initialized():
        return OrderedDict()
    flat: dict[str, Any] = {}
    for key, value in _C.pinned_statistics().items():
        if isinstance(value, dict):
            flat.update({f"{key}.{part}": figure for part, figure in value.items()})
        else:
            flat[key] = value
    return OrderedDict(sorted(flat.items()))


def reset_peak_host_memory_stats() -> None:
    """Makes the peaks of the pinned host allocator what is current."""
    _C.reset_pinned_peak_statistics()


def reset_accumulated_host_memory_stats() -> None:
    """Sets the historical totals of the pinned host allocator to zero."""
    _C.reset_pinned_accumulated_statistics()


# Memory handed out as an address: a storage keeps each until it is given back.
_raw_allocations: dict[int, torch.UntypedStorage] = {}


def caching_allocator_alloc(size: int, device: DeviceLike = None, stream: torch.Stream | None = None) -> int:
    """Takes ``size`` bytes from the caching allocator for use on ``stream`` and returns their address."""
    from torch_mojo_backend.mojo.streams import StreamContext, current_stream

    if size <= 0:
        raise ValueError(f"expected a positive number of bytes, got {size}")
    index = _get_device_index(device, optional=True)
    with StreamContext(current_stream(index) if stream is None else stream):
        storage = torch.UntypedStorage(size, device=torch.device(DEVICE_TYPE, index))
    address = storage.data_ptr()
    _raw_allocations[address] = storage
    return address


def caching_allocator_delete(mem_ptr: int) -> None:
    """Gives back memory of ``caching_allocator_alloc``."""
    if _raw_allocations.pop(mem_ptr, None) is None:
        raise ValueError(f"no memory of caching_allocator_alloc begins at {mem_ptr:#x}")
