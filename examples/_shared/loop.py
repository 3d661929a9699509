"""The loop around the steps: when to read losses back, validate and write checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from .interrupt import Interrupt
from .progress import Progress
from .state import State


@dataclass
class Loop:
    """`step` queues one update of the weights and returns its loss, a scalar on the device, without waiting for it: the
    host prepares the next steps while the device computes. Each step consumes `items` of what `unit` names."""

    state: State
    step: Callable[[], torch.Tensor]
    validate: Callable[[], dict[str, float]]
    items: int
    unit: str
    saved: int = field(default=-1, init=False)  # the step of this run's latest checkpoint
    began: float = field(default=0.0, init=False)  # when the device was last known to be idle
    began_at: int = field(default=0, init=False)  # the step then

    def run(self) -> int:
        """Trains until the last step, --stop-at or an interruption. Returns the program's exit status."""
        state, args = self.state, self.state.args
        last = min(args.steps, args.stop_at or args.steps)
        with Interrupt() as interrupt, Progress(args.steps, state.step) as progress:
            self.restart_clock()
            try:
                while state.step < last and interrupt.signal is None:
                    state.history.add(self.step())
                    state.step += 1
                    if self.due(args.log_every):
                        self.report(progress)
                    if self.due(args.val_every):
                        self.report_validation(progress)
                    if self.due(args.checkpoint_every):
                        self.report(progress)
                        self.save()
                self.report(progress)
            except FloatingPointError as error:
                progress.say(f"stopped: {error}; no checkpoint was written after that")
                return 1
            if self.saved != state.step:
                self.save()
        return self.end(interrupt.signal)

    def due(self, every: int) -> bool:
        step = self.state.step
        return step == self.state.args.steps or (every > 0 and step % every == 0)

    def restart_clock(self) -> None:
        self.began, self.began_at = time.perf_counter(), self.state.step

    def report(self, progress: Progress) -> None:
        """Reads back what the steps since the last report lost: here, and not in the steps, the host waits."""
        state = self.state
        losses = state.history.read_back()
        if losses:
            rate = (state.step - self.began_at) * self.items / (time.perf_counter() - self.began)
            digits = 0 if rate >= 10 else 1
            loss, lr = sum(losses) / len(losses), state.scheduler.get_last_lr()[0]
            progress.show(state.step, f"loss {loss:.4f}  lr {lr:.2e}  {rate:,.{digits}f} {self.unit}/s")
        self.restart_clock()

    def report_validation(self, progress: Progress) -> None:
        self.report(progress)
        found = self.state.history.validations[self.state.step] = self.validate()
        text = "  ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in found.items())
        progress.say(f"step {self.state.step}: {text}")
        self.restart_clock()

    def save(self) -> None:
        self.state.save()
        self.saved = self.state.step
        self.restart_clock()

    def end(self, signal: int | None) -> int:
        state = self.state
        step = f"step {state.step} of {state.args.steps}"
        if signal is not None:
            print(f"interrupted at {step}: {state.path} is written, --resume goes on from there", flush=True)
            return 128 + signal
        if state.step < state.args.steps:
            print(f"stopped at {step}: --resume goes on from there", flush=True)
        if not state.draw():
            print(f"{state.args.out / 'loss.png'} needs matplotlib (pip install matplotlib)", flush=True)
        if state.device.type != "cpu":
            peak = torch.accelerator.max_memory_allocated(state.device)
            print(f"peak of device memory: {peak / 2**20:,.0f} MiB", flush=True)
        print(f"{state.args.out}: {', '.join(sorted(path.name for path in state.args.out.iterdir()))}", flush=True)
        return 0
