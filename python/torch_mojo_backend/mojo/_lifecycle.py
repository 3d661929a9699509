"""What may be asked before the first use of a device, initialisation, and the state after a fork.

Nothing here opens a device or starts a thread: a child forked after any of these calls may use the devices (G-04).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from torch_mojo_backend import _C

_lock = threading.RLock()
_initialized = False
_deferred: list[Callable[[], None]] = []


def device_count() -> int:
    """How many devices the driver of this process has."""
    return _C.device_count()


def is_available() -> bool:
    """Whether there is a device."""
    return device_count() > 0


def is_initialized() -> bool:
    """Whether ``init()`` has run; torch calls it at the first use of a device."""
    return _initialized and not _is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had used a device."""
    return _C.in_bad_fork()


def init() -> None:
    """Initialises the backend. There is no need to call it: the first use of a device does."""
    _lazy_init()


def _lazy_init() -> None:
    global _initialized
    if _is_in_bad_fork():
        raise RuntimeError(
            "mojo backend: this process was forked from one that had already used a device, and its streams and "
            "memory do not survive a fork; use the 'spawn' (or 'forkserver') start method of multiprocessing, or "
            "fork before the first use of a device"
        )
    if _initialized:
        return
    with _lock:
        if _initialized:
            return
        # Set first: a deferred call may ask whether we are initialised.
        _initialized = True
        while _deferred:
            _deferred.pop(0)()


def _lazy_call(function: Callable[[], None]) -> None:
    """Runs ``function`` now, or at initialisation where that has not happened or cannot happen in this process."""
    with _lock:
        if not is_initialized():
            _deferred.append(function)
            return
    function()
