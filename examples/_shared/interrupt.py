"""Ctrl-C ends a training after the running step, with a checkpoint; a second one ends it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupt:
    """Inside the block, SIGINT and SIGTERM set `signal` instead of ending the program."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():  # nobody else may set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._take)
        return self

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        self._restore()

    def _restore(self) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()


def ignore_in_worker(worker: int) -> None:
    """For a DataLoader's workers: Ctrl-C reaches them too, and the running step still needs them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
