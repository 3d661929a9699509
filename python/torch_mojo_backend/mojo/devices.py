"""The current device, and what a device is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from torch_mojo_backend import _C
from torch_mojo_backend._registration import DEVICE_TYPE
from torch_mojo_backend.mojo._utils import DeviceLike, _get_device_index, _out_of_range


def current_device() -> int:
    """The index of this thread's current device."""
    return torch.accelerator.current_device_index()


def set_device(device: DeviceLike) -> None:
    """Makes ``device`` this thread's current device; a negative index does nothing."""
    torch.accelerator.set_device_index(_get_device_index(device))


class device:
    """Context manager: makes a device current and restores the one before. None or a negative index does nothing."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = torch.accelerator.current_device_index()
            torch.accelerator.set_device_index(self.idx)

    def __exit__(self, *exc_info: object) -> None:
        if self.idx >= 0:
            torch.accelerator.set_device_index(self.prev_idx)


class device_of(device):
    """Context manager: makes the device of a tensor or storage current; does nothing for one of another device type."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.device if obj.device.type == DEVICE_TYPE else None)


@dataclass(frozen=True)
class DeviceProperties:
    """What is known of a device, under the names that torch.cuda uses."""

    name: str
    driver: str
    total_memory: int  # bytes
    multi_processor_count: int  # on the host device, its worker threads
    major: int
    minor: int
    warp_size: int
    max_threads_per_block: int
    shared_memory_per_block: int  # bytes


def get_device_properties(device: DeviceLike = None) -> DeviceProperties:
    """What is known of a device. Opens it."""
    found = _C.device_properties(_get_device_index(device, optional=True))
    return DeviceProperties(
        name=found["name"],
        driver=found["driver"],
        total_memory=found["total_memory"],
        multi_processor_count=found["multiprocessor_count"],
        major=found["major"],
        minor=found["minor"],
        warp_size=found["warp_size"],
        max_threads_per_block=found["max_threads_per_block"],
        shared_memory_per_block=found["max_shared_memory_per_block"],
    )


def get_device_name(device: DeviceLike = None) -> str:
    """A device's name, for a person. Opens the device."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """(major, minor) of the compute capability; ``torch.accelerator.get_device_capability`` tells the dtypes."""
    found = get_device_properties(device)
    return found.major, found.minor


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether copies between two devices do not pass through the host."""
    index, peer = (_get_device_index(d, optional=True) for d in (device, peer_device))
    for i in (index, peer):
        if not 0 <= i < _C.device_count():
            raise _out_of_range(i)
    return index != peer and _C.has_feature(index, "peer_copies")


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether tensors of bfloat16 can be computed with: always."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("mojo")`` accepts."""
    return [torch.float16, torch.bfloat16]
