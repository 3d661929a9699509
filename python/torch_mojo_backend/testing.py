"""Helpers for tests of code that uses streams: hold a stream, choose the schedule, assert that a call did not wait.

A test that sleeps proves nothing about order; one that holds a stream does::

    with Gate(side):             # nothing queued on `side` from here runs ...
        x.copy_(y, non_blocking=True)
        assert not side.query()
    side.synchronize()           # ... until the block ends
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import TracebackType

import torch

from torch_mojo_backend import _C
from torch_mojo_backend.mojo._utils import DeviceLike, _get_device_index
from torch_mojo_backend.mojo.streams import _require_stream

__all__ = ["Gate", "assert_no_host_wait", "host_waits", "schedule"]

_SCHEDULE_SETTING = "TORCH_MOJO_BACKEND_HOST_SCHEDULE"


class Gate:
    """Holds a stream: work queued on it after the gate was made waits until ``open()``.

    Nothing else is held: no thread, no lock, no other stream. As a context manager it opens at the end of the block. A
    gate that is still closed after ``timeout`` seconds opens by itself, so that a mistaken test fails instead of
    hanging: ``open()`` and the end of the block then raise TimeoutError.
    """

    def __init__(self, stream: torch.Stream | None = None, *, timeout: float = 60.0) -> None:
        """Closes a gate on ``stream``, the current one by default."""
        self._stream = torch.accelerator.current_stream() if stream is None else _require_stream(stream)
        self._timeout = min(float(timeout), threading.TIMEOUT_MAX)
        if not self._timeout > 0:
            raise ValueError(f"expected a timeout in seconds, more than 0, got {timeout!r}")
        self._timed_out = False
        self._lock = threading.Lock()
        self._gate = _C.Gate(self._stream.device_index, self._stream.stream_id)
        self._timer = threading.Timer(self._timeout, self._time_out)
        self._timer.daemon = True
        self._timer.start()

    @property
    def stream(self) -> torch.Stream:
        """The stream that the gate is on."""
        return self._stream

    @property
    def is_open(self) -> bool:
        """Whether the gate has been opened."""
        return self._gate.is_open

    @property
    def held(self) -> bool:
        """Whether the stream has come to the gate and is being held by it: all work before it is complete."""
        return self._gate.held

    def open(self) -> None:
        """Lets the stream go on. Opening again does nothing. Raises TimeoutError if the gate had to open by itself."""
        with self._lock:
            self._timer.cancel()
            self._gate.open()
            timed_out, self._timed_out = self._timed_out, False
        if timed_out:
            raise TimeoutError(f"the gate on {self._stream} was not opened within {self._timeout} s")

    def _time_out(self) -> None:
        with self._lock:
            if not self._gate.is_open:
                self._timed_out = True
                self._gate.open()

    def __enter__(self) -> Gate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.open()
        except TimeoutError:
            if error is None:
                raise


def host_waits() -> int:
    """How often this thread has waited for a device so far, whether or not it had to block.

    So the count does not depend on how fast the device was.
    """
    return _C.host_waits()


@contextlib.contextmanager
def assert_no_host_wait() -> Iterator[None]:
    """Fails with AssertionError if this thread waits for a device inside the block, idle or not."""
    before = host_waits()
    yield
    if waited := host_waits() - before:
        raise AssertionError(f"the block made the host wait for a device {waited} time{'s' if waited > 1 else ''}")


@contextlib.contextmanager
def schedule(seed: int | None, device: DeviceLike = None) -> Iterator[None]:
    """Runs the block under an adversarial schedule of the host device, chosen by ``seed``; None means first come, first
    served.

    Of the streams that are ready, the seed picks which one goes on, and which are delayed: with one calling thread, two
    runs with one seed run the tasks in the same order, and a program that lacks a wait goes wrong under some seeds.
    ``device`` None means every device. Waits for the devices before and after the block, and then restores what
    ``TORCH_MOJO_BACKEND_HOST_SCHEDULE`` says.
    """
    indices = range(_C.device_count()) if device is None else [_get_device_index(device, optional=True)]
    _set_schedule(indices, "fifo" if seed is None else f"random:{seed}")
    try:
        yield
    except BaseException:
        _drain(indices)
        _set_schedule(indices, _configured_schedule())
        raise
    failure = _drain(indices)
    _set_schedule(indices, _configured_schedule())
    if failure is not None:
        raise failure


def _configured_schedule() -> str:
    return next(row["value"] for row in _C.settings() if row["name"] == _SCHEDULE_SETTING)


def _set_schedule(indices: range | list[int], text: str) -> None:
    for i in indices:
        _C.synchronize(i)
        _C.set_option(i, "schedule", text)


def _drain(indices: range | list[int]) -> BaseException | None:
    """Makes the devices idle, and returns the first failure that their streams had kept."""
    first: BaseException | None = None
    for i in indices:
        while True:
            try:
                _C.synchronize(i)
                break
            except Exception as failure:
                first = first or failure
    return first
