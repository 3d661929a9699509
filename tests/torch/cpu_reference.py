"""What a run on the device is compared with: the same run on the CPU, dropout masks included."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """How far values may be apart, and why they may be apart at all."""

    reason: str
    rtol: float = 1e-5
    atol: float = 1e-6


def copied(value: Any, device: torch.device | str) -> Any:
    """A copy of `value` with its tensors on `device`, as new leaves that need a gradient where the originals do."""
    if isinstance(value, PackedSequence):
        on_host = value.batch_sizes  # wherever the data is
        return PackedSequence(copied(value.data, device), on_host, *(copied(i, device) for i in value[2:]))
    if isinstance(value, torch.Tensor):
        return value.detach().clone().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(copied(v, device) for v in value)
    if isinstance(value, dict):
        return {k: copied(v, device) for k, v in value.items()}
    return value


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in `value`, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors(v)] if isinstance(value, (list, tuple)) else []


def check_same(
    actual: Iterable[torch.Tensor | None],
    expected: Iterable[torch.Tensor | None],
    what: str,
    tolerance: Tolerance | None = None,
    *,
    strides: bool = False,
) -> None:
    """Each tensor of `actual`, on the device, equals its partner on the CPU; without a tolerance, to the last bit."""
    actual, expected = list(actual), list(expected)
    assert len(actual) == len(expected), what
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert (a is None) == (e is None), f"{what} {i}: {a} and {e}"
        if e is None:
            continue
        assert a.device.type == "mojo", f"{what} {i} is on {a.device}"
        assert e.device.type == "cpu"
        if strides and e.numel() > 1:
            assert a.stride() == e.stride(), f"{what} {i}: strides"
        rtol, atol = (tolerance.rtol, tolerance.atol) if tolerance else (0, 0)
        torch.testing.assert_close(
            a.detach().cpu(), e.detach(), rtol=rtol, atol=atol, equal_nan=True, msg=lambda m, i=i: f"{what} {i}: {m}"
        )


class RecordedMasks(TorchDispatchMode):
    """Keeps the mask of each dropout that runs on the device, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.masks: list[torch.Tensor] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.native_dropout.default:
            self.masks.append(result[1])
        return result


class FedMasks(TorchDispatchMode):
    """Gives each dropout of a CPU run the next of the recorded masks in place of one drawn at random.

    CPU multiplies by mask / (1 - p), the device by the mask and then by 1 / (1 - p): the same for the values of p that
    tests use, of which float32 has 1 - p exactly.
    """

    def __init__(self, masks: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self.masks = [mask.cpu() for mask in masks]
        self.used = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.bernoulli_.float:
            mask = self.masks[self.used]
            self.used += 1
            assert mask.shape == args[0].shape
            return args[0].copy_(mask)
        return func(*args, **(kwargs or {}))

    def check_all_used(self) -> None:
        assert self.used == len(self.masks) > 0
