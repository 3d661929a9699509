"""How often each op was queued and how often it made the host wait: for tests, and to look for waits."""

from __future__ import annotations

from typing import NamedTuple

from torch_mojo_backend import _C


class OpCount(NamedTuple):
    """The calls of one op in all threads."""

    queued: int
    """Calls that returned before their work had run."""
    inline: int
    """Calls that made the host wait until the work, and what was queued on the stream before, had run."""
    reason: str
    """Why, if any ran inline, else empty."""


def op_counts() -> dict[str, OpCount]:
    """The ops that were called since the last ``reset_op_counts()``, by the name and overload that reached the device.

    That is the name of the kernel: ``x.copy_(y)`` arrives as ``aten::_copy_from``, ``x.item()`` as
    ``aten::_local_scalar_dense``, a convolution as ``aten::convolution_overrideable``. What queues no work and waits
    for nothing (views, ``empty``) is not counted. Ops come by their number of calls, those that ran inline first.
    """
    counts = {name: OpCount(c["queued"], c["waited"], c["reason"]) for name, c in _C.op_counts().items()}
    return dict(sorted(counts.items(), key=lambda item: (-item[1].inline, -item[1].queued, item[0])))


def reset_op_counts() -> None:
    """Starts all counts anew."""
    _C.reset_op_counts()
