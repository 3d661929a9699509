"""The random number generators of the devices, one a device. Setting and reading them opens no device."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import torch

from torch_mojo_backend import _C
from torch_mojo_backend._registration import DEVICE_TYPE
from torch_mojo_backend.mojo import _lifecycle
from torch_mojo_backend.mojo._utils import DeviceLike, _get_device_index


def _generator(device: DeviceLike) -> torch.Generator:
    return _C.default_generator(_get_device_index(device, optional=True))


def _default_generators() -> tuple[torch.Generator, ...]:
    """The default generator of each device: what ``torch.mojo.default_generators`` is."""
    return tuple(_C.default_generator(i) for i in range(_C.device_count()))


def get_rng_state(device: DeviceLike = DEVICE_TYPE) -> torch.Tensor:
    """The state of a device's generator as a CPU tensor of bytes."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators."""
    return [generator.get_state() for generator in _default_generators()]


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = DEVICE_TYPE) -> None:
    """Sets the state of a device's generator."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Sets the states of all devices' generators."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


def manual_seed(seed: int) -> None:
    """Seeds the generator of the current device."""
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices. In a process that was forked too late it only remembers the seed."""
    if _lifecycle._is_in_bad_fork():
        _lifecycle._lazy_call(partial(manual_seed_all, seed))
        return
    for generator in _default_generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seeds the generator of the current device with a number drawn from the system."""
    _generator(None).seed()


def seed_all() -> None:
    """Seeds the generators of all devices with one number drawn from the system."""
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    """The seed of the current device's generator."""
    return _generator(None).initial_seed()
