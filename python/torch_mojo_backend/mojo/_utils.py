"""How a device argument becomes a device index, by the rules of torch's own device modules."""

from __future__ import annotations

from typing import TypeAlias

import torch

from torch_mojo_backend._registration import DEVICE_TYPE

DeviceLike: TypeAlias = "torch.device | str | int | None"


def _out_of_range(index: int) -> RuntimeError:
    """What the native side says of an index that it can hold."""
    count = torch.accelerator.device_count()
    valid = "the only device is 0" if count == 1 else f"there are {count} devices, 0 to {count - 1}"
    return RuntimeError(f"mojo backend: device index {index} is out of range: {valid}")


def _get_device_index(device: DeviceLike, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of ``device``.

    A device without an index, or None, is the current device if ``optional``, else a ValueError; another device type is
    a ValueError too (-1 for the CPU if ``allow_cpu``). Whether the index exists is checked where it is used.
    """
    if isinstance(device, bool):
        raise TypeError(f"expected a device, a string or an index, got {device!r}")
    if isinstance(device, int):
        # torch keeps an index in 8 bits: one that does not fit must not become another.
        if not -128 <= device <= 127:
            raise _out_of_range(device)
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type == "cpu" and allow_cpu:
            return -1
        if device.type != DEVICE_TYPE:
            raise ValueError(f"expected a {DEVICE_TYPE} device, got {device}")
        if device.index is not None:
            return device.index
    elif device is not None:
        raise TypeError(f"expected a device, a string or an index, got {device!r}")
    if not optional:
        raise ValueError(f"expected a {DEVICE_TYPE} device with an index, got {device}")
    return torch.accelerator.current_device_index()


def _index_or_none(device: DeviceLike) -> int | None:
    """``device`` as an index; None stays None, so that a function that is a no-op before the first use stays one."""
    return None if device is None else _get_device_index(device, optional=True)
