"""DLPack for device tensors.

Core knows an out-of-tree device type only by the name ``privateuse1``, so ``Tensor.__dlpack_device__`` raises for a
type that has been renamed, and ``Tensor.__dlpack__`` orders nobody's stream. ``install()`` mends both, for tensors of
our type alone. On the host device the capsule says kDLExtDev.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import has_torch_function_unary
from torch.utils.dlpack import DLDeviceType

_DEVICE_TYPE = "mojo"

_core_dlpack: Callable[..., Any] = torch.Tensor.__dlpack__
_core_dlpack_device: Callable[..., Any] = torch.Tensor.__dlpack_device__

# By device index: the native handles of the streams looked at so far, in the order of the stream ids. A stream lives as
# long as the process and its handle is stable, so nothing is looked at twice.
_stream_ids: dict[int, dict[int, int]] = {}
_stream_ids_lock = threading.Lock()


def install() -> None:
    """Puts the two methods in the place of core's; idempotent."""
    torch.Tensor.__dlpack__ = _dlpack  # type: ignore[method-assign]
    torch.Tensor.__dlpack_device__ = _dlpack_device  # type: ignore[method-assign]


def _is_ours(tensor: torch.Tensor) -> bool:
    # A subclass that overrides torch functions gets its say from core's method.
    return tensor.device.type == _DEVICE_TYPE and not has_torch_function_unary(tensor)


@functools.wraps(_core_dlpack_device)
def _dlpack_device(self: torch.Tensor) -> tuple[Any, int]:
    if not _is_ours(self):
        return _core_dlpack_device(self)  # type: ignore[no-any-return]
    return DLDeviceType.kDLExtDev, self.device.index


@functools.wraps(_core_dlpack)
def _dlpack(self: torch.Tensor, **options: Any) -> Any:
    # For a device tensor `stream` is the consumer's: a native_handle, a torch.Stream of the tensor's device, None for
    # the device's default stream, or -1, the default, for no ordering. With an unknown handle nothing is exported.
    if not _is_ours(self):
        return _core_dlpack(self, **options)
    consumer = _consumer_stream(self.device, options.pop("stream", -1))
    capsule = _core_dlpack(self, stream=None, **options)
    if consumer is not None:
        # After the export, which may have queued a copy.
        producer = torch.accelerator.current_stream(self.device)
        if consumer != producer:
            consumer.wait_stream(producer)
    return capsule


def _consumer_stream(device: torch.device, stream: Any) -> torch.Stream | None:
    if stream is None:
        return _stream(device, 0)
    if isinstance(stream, torch.Stream):
        if stream.device != device:
            raise BufferError(f"mojo backend: the consumer's stream is on {stream.device}, the tensor on {device}")
        return stream
    if type(stream) is not int:
        raise TypeError("stream must be ``int`` or ``none``")
    return None if stream == -1 else _stream_of_handle(device, stream)


def _stream(device: torch.device, stream_id: int) -> torch.Stream:
    kind = torch._C._accelerator_getStream(device.index).device_type
    return torch.Stream(stream_id=stream_id, device_index=device.index, device_type=kind)


def _native_handle(stream: torch.Stream) -> int:
    handle: int = getattr(stream, "native_handle")  # noqa: B009 (torch has no type for it)
    return handle


def _stream_of_handle(device: torch.device, handle: int) -> torch.Stream:
    with _stream_ids_lock:
        known = _stream_ids.setdefault(device.index, {})
        # Streams may have been made since.
        while handle not in known:
            try:
                known[_native_handle(_stream(device, len(known)))] = len(known)
            except Exception:  # no stream of that id: all have been looked at
                raise BufferError(f"mojo backend: no stream of {device} has the native handle {handle:#x}") from None
        return _stream(device, known[handle])
