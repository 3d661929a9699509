"""What the tests of the torch side share: two host devices, unless the environment says otherwise, registered once."""

import os

import pytest

os.environ.setdefault("TORCH_MOJO_BACKEND_HOST_DEVICES", "2")

import torch
import torch_mojo_backend
from helpers import drain

torch_mojo_backend.register_mojo_devices()


@pytest.fixture
def device() -> torch.device:
    """The first device."""
    return torch.device("mojo", 0)


@pytest.fixture
def other() -> torch.device:
    """Another device than `device`; skips where there is one alone."""
    if torch.accelerator.device_count() < 2:
        pytest.skip("needs two devices")
    return torch.device("mojo", 1)


@pytest.fixture
def stream(device: torch.device) -> torch.Stream:
    """A new stream of `device`."""
    return torch.Stream(device)


@pytest.fixture(autouse=True)
def idle_device():
    """No test leaves work, a kept failure, a current device or a current stream to the next."""
    yield
    drain()
    for index in reversed(range(torch.accelerator.device_count())):
        torch.accelerator.set_stream(torch.mojo.default_stream(index))
    torch.accelerator.set_device_index(0)
