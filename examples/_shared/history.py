"""The losses of a run: kept on the device, read back together, written as a table and drawn."""

from __future__ import annotations

import csv
import math
import pathlib

import torch


class History:
    def __init__(self) -> None:
        self.losses: list[float] = []  # of step 1, 2, ...
        self.validations: dict[int, dict[str, float]] = {}  # by step
        self._pending: list[torch.Tensor] = []

    def add(self, loss: torch.Tensor) -> None:
        """Remembers the loss of a step; does not wait for it."""
        self._pending.append(loss)

    def read_back(self) -> list[float]:
        """The losses added since the last time. Waits for them; raises FloatingPointError if one is not finite."""
        if not self._pending:
            return []
        read = torch.stack(self._pending).tolist()
        self._pending.clear()
        for step, loss in enumerate(read, len(self.losses) + 1):
            if not math.isfinite(loss):
                raise FloatingPointError(f"the loss of step {step} is {loss}")
        self.losses += read
        return read

    def state_dict(self) -> dict[str, object]:
        return {"losses": self.losses, "validations": self.validations}

    def load_state_dict(self, state: dict) -> None:
        self.losses, self.validations = state["losses"], state["validations"]

    def write_csv(self, path: pathlib.Path) -> None:
        names = sorted({name for found in self.validations.values() for name in found})
        with open(path, "w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["step", "loss", *names])
            for step, loss in enumerate(self.losses, 1):
                found = self.validations.get(step, {})
                table.writerow([step, loss, *(found.get(name, "") for name in names)])

    def draw(self, path: pathlib.Path, title: str) -> None:
        """A PNG of the losses. Raises ImportError without matplotlib."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 5), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(range(1, len(self.losses) + 1), self.losses, linewidth=0.8, label="loss")
        steps = sorted(self.validations)
        for name in self.validations[steps[-1]] if steps else []:
            values = [self.validations[step][name] for step in steps]
            label = name.replace("_", " ")
            if name.endswith("loss"):
                axes.plot(steps, values, marker="o", markersize=3, label=label)
            else:
                other = axes.twinx()
                other.plot(steps, values, marker="s", markersize=3, color="tab:green")
                other.set_ylabel(label, color="tab:green")
                other.set_ylim(0, 1)
        axes.set(title=title, xlabel="step", ylabel="loss")
        axes.grid(alpha=0.3)
        axes.legend()
        figure.savefig(path, format="png", dpi=120)
