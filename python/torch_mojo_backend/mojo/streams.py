"""The current stream, and streams made current. ``Stream`` and ``Event`` are torch's own classes."""

from __future__ import annotations

from typing import Any

import torch

from torch_mojo_backend import _C
from torch_mojo_backend._registration import DEVICE_TYPE
from torch_mojo_backend.mojo._utils import DeviceLike, _get_device_index

# Host cycles of _sleep that make a nanosecond.
_CYCLES_PER_NANOSECOND = 1.5


def _require_stream(stream: Any) -> torch.Stream:
    if not isinstance(stream, torch.Stream):
        raise TypeError(f"expected a torch.Stream, got {type(stream).__name__}")
    if stream.device.type != DEVICE_TYPE:
        raise ValueError(f"expected a stream of a {DEVICE_TYPE} device, got one of {stream.device}")
    return stream


def current_stream(device: DeviceLike = None) -> torch.Stream:
    """This thread's current stream of a device (None: of the current device)."""
    return torch.accelerator.current_stream(_get_device_index(device, optional=True))


def default_stream(device: DeviceLike = None) -> torch.Stream:
    """The default stream of a device (None: of the current device)."""
    current = current_stream(device)
    return torch.Stream(stream_id=0, device_index=current.device_index, device_type=current.device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes ``stream`` current, and its device too; None does nothing."""
    if stream is not None:
        torch.accelerator.set_stream(_require_stream(stream))


class StreamContext:
    """Context manager: makes a stream current, and its device too, and restores both; None does nothing.

    What was current is kept in the context, not in the stream: threads that each make their own may enter one stream
    object at the same time, which ``with stream:`` does not allow.
    """

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = None if stream is None else _require_stream(stream)
        # Of each entry: what was current on the device that was current, and on the stream's device.
        self._restore: list[tuple[torch.Stream, torch.Stream]] = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        outer = torch.accelerator.current_stream()
        inner = torch.accelerator.current_stream(self.stream.device_index)
        torch.accelerator.set_stream(self.stream)
        self._restore.append((outer, inner))

    def __exit__(self, *exc_info: object) -> None:
        if self.stream is None:
            return
        outer, inner = self._restore.pop()
        if inner.device_index != outer.device_index:
            torch.accelerator.set_stream(inner)
        torch.accelerator.set_stream(outer)


def stream(stream: torch.Stream | None) -> StreamContext:
    """``with torch.mojo.stream(s):`` runs the block with ``s`` current. None is a no-op."""
    return StreamContext(stream)


def synchronize(device: DeviceLike = None) -> None:
    """Blocks the host until all work on every stream of the device is complete. A no-op before the first use."""
    if device is None:
        torch.accelerator.synchronize()  # Dynamo traces no None here
    else:
        torch.accelerator.synchronize(_get_device_index(device, optional=True))


def priority_range(device: DeviceLike = None) -> tuple[int, int]:
    """(least, greatest): a lower number is a higher priority, and ``Stream(priority=)`` is clamped to the range."""
    return _C.priority_range(_get_device_index(device, optional=True))


def stream_priority(stream: torch.Stream) -> int:
    """The priority that a stream really has."""
    stream = _require_stream(stream)
    return _C.stream_priority(stream.device_index, stream.stream_id)


def is_current_stream_capturing() -> bool:
    """Whether the current stream records a graph: there are none yet."""
    return False


def _sleep(cycles: int) -> None:
    """Keeps the current stream busy: 1.5e6 cycles are a millisecond. Holds no thread of the device."""
    if not 0 <= cycles < 2**63:
        raise ValueError(f"expected a number of cycles from 0 to 2**63 - 1, got {cycles}")
    current = torch.accelerator.current_stream()
    _C.enqueue_delay(current.device_index, current.stream_id, int(cycles / _CYCLES_PER_NANOSECOND))
