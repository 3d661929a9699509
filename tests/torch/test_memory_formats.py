"""Results keep the memory format of a channels-last input where the CPU's do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

CASES = {
    "reflect": (4, lambda x: F.pad(x, (1, 1, 1, 1), "reflect")),
    "replicate": (4, lambda x: F.pad(x, (1, 1, 1, 1), "replicate")),
    "reflect 3d": (5, lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), "reflect")),
    "replicate 3d": (5, lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), "replicate")),
    "constant": (4, lambda x: F.pad(x, (1, 1, 1, 1))),
    "roll": (4, lambda x: torch.roll(x, 1, 2)),
    "roll by a turn": (4, lambda x: torch.roll(x, x.shape[1], 1)),
    "roll of all": (4, lambda x: torch.roll(x, 3)),
    "channel_shuffle": (4, lambda x: torch.channel_shuffle(x, 2)),
    "pixel_shuffle": (4, lambda x: F.pixel_shuffle(x, 2)),
    "pixel_unshuffle": (4, lambda x: F.pixel_unshuffle(x, 2)),
    "interpolate": (4, lambda x: F.interpolate(x, scale_factor=2, mode="bilinear")),
    "max_pool": (4, lambda x: F.max_pool2d(x, 2)),
    "avg_pool": (4, lambda x: F.avg_pool2d(x, 2)),
    "relu": (4, F.relu),
    "clone": (4, torch.clone),
}


@pytest.mark.parametrize("channels", [4, 8])
@pytest.mark.parametrize("name", CASES)
def test_channels_last(name, channels, device):
    dims, op = CASES[name]
    shape = (2, channels, 4, 6) if dims == 4 else (2, channels, 4, 6, 4)
    last = torch.channels_last if dims == 4 else torch.channels_last_3d
    for cpu in (
        torch.randn(shape).to(memory_format=last),
        torch.randn(shape),
        torch.randn(shape).transpose(2, 3),
        torch.randn(shape).to(memory_format=last)[:1],
    ):
        expected, actual = op(cpu), op(cpu.to("mojo"))
        assert actual.stride() == expected.stride()
        assert torch.equal(actual.cpu(), expected)
