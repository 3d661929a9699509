"""Opening a device by name. From here on the scripts use torch's generic calls alone, whatever the device."""

from __future__ import annotations

import argparse
import re

import torch


def open_device(parser: argparse.ArgumentParser, name: str) -> torch.device:
    """The device of that name, made current; ends the program with one line where there is none."""
    if not re.fullmatch(r"(mojo|cuda)(:\d+)?|cpu", name):
        parser.error(f"--device: expected mojo, cpu or cuda, also with an index (cuda:1), got {name!r}")
    device = torch.device(name) if not name.startswith("mojo") else _mojo(parser, name)
    if device.type == "cpu":
        return device
    current = torch.accelerator.current_accelerator(check_available=True)
    if current is None or current.type != device.type:
        parser.error(f"--device {name}: torch {torch.__version__} finds no device of the type {device.type}")
    index, count = device.index or 0, torch.accelerator.device_count()
    if index >= count:
        parser.error(f"--device {name}: there {'is' if count == 1 else 'are'} {count}, counted from 0")
    torch.accelerator.set_device_index(index)
    return torch.device(device.type, index)


def _mojo(parser: argparse.ArgumentParser, name: str) -> torch.device:
    try:
        import torch_mojo_backend
    except ImportError as error:
        parser.error(f"--device {name}: {error}")
    torch_mojo_backend.register_mojo_devices()
    return torch.device(name)


def autocast(device: torch.device, amp: str) -> torch.autocast:
    dtype = {"none": None, "bf16": torch.bfloat16, "f16": torch.float16}[amp]
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def rng_state(device: torch.device) -> dict[str, object]:
    """The states of the generators that a training draws from: CPU's, and the device's."""
    state: dict[str, object] = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        state["type"] = device.type
        state["device"] = torch.get_device_module(device).get_rng_state(device)
    return state


def set_rng_state(device: torch.device, state: dict) -> bool:
    """False if the device's own state could not be set, because it is that of another type of device."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cpu":
        return "device" not in state
    if state.get("type") != device.type:
        return False
    torch.get_device_module(device).set_rng_state(state["device"], device)
    return True
