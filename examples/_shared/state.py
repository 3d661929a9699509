"""What a run carries over to go on exactly where it stopped, and the files that hold it."""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from .arguments import recipe
from .device import rng_state, set_rng_state
from .history import History

PARTS = ("model", "optimizer", "scheduler", "scaler", "history")  # each has state_dict and load_state_dict


@dataclass
class State:
    args: argparse.Namespace
    device: torch.device
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    scaler: torch.amp.GradScaler
    title: str
    step: int = 0
    history: History = field(default_factory=History)

    @property
    def path(self) -> pathlib.Path:
        return self.args.out / "checkpoint.pt"

    def begin(self, parser: argparse.ArgumentParser) -> None:
        """Goes on from the checkpoint with --resume; else sees to it that there is none."""
        if not self.args.resume:
            self.path.unlink(missing_ok=True)
            return
        try:
            self.restore()
        except ValueError as error:
            parser.error(f"--resume: {error}")
        print(f"resumed from {self.path} at step {self.step} of {self.args.steps}", flush=True)

    def update(self) -> None:
        """Queues the step that the gradients ask for, and clears them."""
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.scheduler.step()

    def save(self) -> None:
        """Writes the checkpoint and the table of losses; an interrupted save leaves those before it whole."""
        content = {name: getattr(self, name).state_dict() for name in PARTS}
        content |= {"recipe": recipe(self.args), "step": self.step, "rng": rng_state(self.device)}
        with replacing(self.path) as unfinished:
            torch.save(content, unfinished)
        with replacing(self.args.out / "loss.csv") as unfinished:
            self.history.write_csv(unfinished)

    def draw(self) -> bool:
        """The loss curve as loss.png; False without matplotlib."""
        try:
            with replacing(self.args.out / "loss.png") as unfinished:
                self.history.draw(unfinished, self.title)
        except ImportError:
            return False
        return True

    def restore(self) -> None:
        """Raises ValueError if the file is no checkpoint, or one of a different training."""
        try:
            # Into CPU memory: the generators' states belong there, and load_state_dict uploads the rest.
            content = torch.load(self.path, map_location="cpu", weights_only=True)
            made_with, self.step, rng = content["recipe"], content["step"], content["rng"]
        except (OSError, RuntimeError, EOFError, KeyError, TypeError, pickle.UnpicklingError) as error:
            raise ValueError(f"{self.path} is no checkpoint of this script, or is damaged") from error
        for name, value in recipe(self.args).items():
            if name not in made_with or made_with[name] != value:
                option = "--" + name.replace("_", "-")
                raise ValueError(f"{self.path} was made with {option} {made_with.get(name)}, not {value}")
        for name in PARTS:
            getattr(self, name).load_state_dict(content[name])
        if not set_rng_state(self.device, rng):
            print("the checkpoint is from another type of device: what the device draws differs from here on")


@contextlib.contextmanager
def replacing(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A path to write to, which takes the place of `path` in one step once it is written."""
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        yield unfinished
        with open(unfinished, "rb") as written:
            os.fsync(written.fileno())  # or a crash of the machine could leave an empty file under the name
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
