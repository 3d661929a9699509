"""Registration: the one place where this package changes torch."""

from __future__ import annotations

import threading
import warnings

import torch

DEVICE_TYPE = "mojo"

# torch's name for a PrivateUse1 backend that nobody has registered.
_UNREGISTERED = "privateuseone"

_lock = threading.Lock()
_registered = False


def is_registered() -> bool:
    """Whether ``register_mojo_devices()`` has completed in this process."""
    return _registered


def register_mojo_devices() -> None:
    """Makes ``mojo`` the current accelerator of torch.

    Idempotent and safe to call from several threads. Starts no thread and opens no device, so that a child forked
    afterwards may use the devices. Everything that can be wrong (a setting that does not parse, an unavailable driver,
    another backend in the place) is checked before the first change: on an exception, torch is as it was.
    """
    global _registered
    with _lock:
        if _registered:
            return
        _require_free_place()
        _require_valid_settings()
        _change_torch()
        _registered = True


def _require_free_place() -> None:
    name = torch._C._get_privateuse1_backend_name()
    if name != _UNREGISTERED:
        raise RuntimeError(
            f"mojo backend: torch has room for one out-of-tree backend and '{name}' is already registered in this "
            "process: use one of the two"
        )
    if hasattr(torch, DEVICE_TYPE):
        raise RuntimeError(f"mojo backend: torch.{DEVICE_TYPE} already exists: {getattr(torch, DEVICE_TYPE)!r}")


def _require_valid_settings() -> None:
    from torch_mojo_backend import _C

    for text in _C.unknown_settings():
        warnings.warn(text, UserWarning, stacklevel=3)
    _C.check_settings()
    # Chooses the driver and counts its devices: raises where the driver asked for is not available.
    _C.device_count()


def _change_torch() -> None:
    from torch_mojo_backend import _C, _dlpack, _inductor, mojo

    # First, for it refuses where another library has registered its parts without a name.
    _C.register_backend()
    torch.utils.rename_privateuse1_backend(DEVICE_TYPE)
    torch._register_device_module(DEVICE_TYPE, mojo)
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    _C.register_ops()
    _dlpack.install()
    _inductor.refuse_inductor()
