"""Shows the main job: the reference examples, then uploads that run while the device computes.

    python examples/demo.py

Runs on whatever device is there; without a GPU that is the host device, which is asynchronous too. `make demo` builds
and installs everything first.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch_mojo_backend

HERE = pathlib.Path(__file__).resolve().parent
BATCHES = 8
ROWS, FEATURES, OUTPUTS = 8192, 1024, 256
WIDTH = 72  # characters of the timeline

Span = tuple[torch.Event, torch.Event]


def heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def run_examples() -> None:
    """Each alone in a fresh interpreter, as a user would run it."""
    for path in sorted((HERE / "reference").glob("*.py")):
        heading(f"examples/reference/{path.name}")
        start = time.perf_counter()
        run = subprocess.run([sys.executable, str(path)], text=True, stdout=subprocess.PIPE, timeout=300)
        print(run.stdout, end="")
        if run.returncode:
            sys.exit(f"{path.name} ended with exit code {run.returncode}")
        print(f"({time.perf_counter() - start:.1f} s with the start of Python and torch)")


def best_of(times: int, f: Callable[[], object]) -> float:
    """The shortest time of a few, in milliseconds, from an idle device to an idle device."""
    best = float("inf")
    for _ in range(times):
        torch.accelerator.synchronize()
        start = time.perf_counter()
        f()
        torch.accelerator.synchronize()
        best = min(best, 1e3 * (time.perf_counter() - start))
    return best


class Pipeline:
    """Batches in pinned memory, a stream that uploads them, and the current stream that computes."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.main = torch.accelerator.current_stream()
        self.copies = torch.Stream(device)
        self.batches = [torch.randn(ROWS, FEATURES).pin_memory() for _ in range(BATCHES)]
        self.weight = torch.randn(FEATURES, OUTPUTS, device=device)
        self.resident = self.batches[0].to(device)
        self.rows = ROWS  # how many rows a compute step works on: set so that it takes as long as an upload

    def upload(self, batch: torch.Tensor) -> torch.Tensor:
        with self.copies:
            return batch.to(self.device, non_blocking=True)

    def compute(self, batch: torch.Tensor) -> torch.Tensor:
        return (batch[: self.rows] @ self.weight).square().mean()

    def balance(self) -> None:
        for _ in range(3):
            ratio = best_of(3, lambda: self.upload(self.batches[0])) / best_of(3, lambda: self.compute(self.resident))
            self.rows = max(64, min(ROWS, int(self.rows * ratio)))

    def only_uploads(self) -> None:
        for batch in self.batches:
            self.upload(batch)

    def only_compute(self) -> None:
        for _ in self.batches:
            self.compute(self.resident)

    def one_after_the_other(self) -> None:
        for batch in self.batches:
            self.compute(batch.to(self.device, non_blocking=True))

    def overlapped(self, spans: dict[str, list[Span]] | None = None) -> torch.Tensor:
        """While batch i is computed, batch i + 1 is uploaded. With `spans`, each step is put between two events."""

        def timed(name: str, stream: torch.Stream, f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor):
            if spans is None:
                return f(x)
            start, end = (torch.Event(self.device, enable_timing=True) for _ in range(2))
            start.record(stream)
            result = f(x)
            end.record(stream)
            spans[name].append((start, end))
            return result

        losses = []
        following = timed("upload", self.copies, self.upload, self.batches[0])
        for i in range(BATCHES):
            self.main.wait_stream(self.copies)  # batch i has arrived
            batch = following
            batch.record_stream(self.main)  # allocated on the copy stream, used on main
            if i + 1 < BATCHES:
                following = timed("upload", self.copies, self.upload, self.batches[i + 1])
            losses.append(timed("compute", self.main, self.compute, batch))
        return torch.stack(losses)


def timeline(zero: torch.Event, spans: dict[str, list[Span]]) -> str:
    """One lane a stream; a digit is the batch that the stream works on at that time."""
    lanes = {name: [(zero.elapsed_time(a), zero.elapsed_time(b)) for a, b in pairs] for name, pairs in spans.items()}
    first = min(a for lane in lanes.values() for a, _ in lane)
    total = max(b for lane in lanes.values() for _, b in lane) - first
    lines = [f"{'':9s}0 ms{f'{total:.1f} ms':>{WIDTH - 4}s}"]
    for name, lane in lanes.items():
        cells = ["."] * WIDTH
        for batch, (a, b) in enumerate(lane):
            begin = int((a - first) / total * WIDTH)
            end = max(begin + 1, round((b - first) / total * WIDTH))
            for cell in range(begin, min(end, WIDTH)):
                cells[cell] = str(batch)
        lines.append(f"{name:>8s} {''.join(cells)}")
    return "\n".join(lines)


def show_overlap(device: torch.device) -> None:
    heading("Uploads and compute, one stream each")
    torch.set_num_threads(1)  # leave a core to the copies
    pipeline = Pipeline(device)
    pipeline.balance()
    rows = [
        ("uploads alone", best_of(5, pipeline.only_uploads)),
        ("compute alone", best_of(5, pipeline.only_compute)),
        ("one after the other", best_of(5, pipeline.one_after_the_other)),
        ("overlapped", best_of(5, pipeline.overlapped)),
    ]
    for name, milliseconds in rows:
        print(f"{name:20s} {milliseconds:8.1f} ms")
    uploads, compute, in_turn, overlapped = (milliseconds for _, milliseconds in rows)
    print(
        f"overlapped takes {overlapped / max(uploads, compute):.2f} times the longer of the two, "
        f"{overlapped / in_turn:.2f} times both in turn"
    )

    heading("The same, by the device's clock: which batch each stream works on")
    spans: dict[str, list[Span]] = {"upload": [], "compute": []}
    torch.accelerator.synchronize()
    zero = torch.Event(device, enable_timing=True)
    zero.record()
    pipeline.overlapped(spans)
    torch.accelerator.synchronize()
    print(timeline(zero, spans))


def main() -> None:
    torch_mojo_backend.register_mojo_devices()
    device = torch.accelerator.current_accelerator()
    if device is None:
        sys.exit("no accelerator: register_mojo_devices() has registered none")
    print(f"torch {torch.__version__}, device {device}: {torch.get_device_module(device).get_device_name()}")
    run_examples()
    show_overlap(device)


if __name__ == "__main__":
    main()
