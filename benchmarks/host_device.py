"""What the host device costs beside plain CPU eager: python benchmarks/host_device.py [--json FILE] [--rounds N]

Both sides run in one process, in turn, and each row is a ratio of medians, so that a busy machine disturbs both alike.
Rows: `small_add` (time of the call, 16 elements), `empty_drop` (make and drop a tensor), `large_add`, `large_mm` and
`large_softmax` (wall time of the op and a synchronize), `prefetch` (uploads on a side stream while the main stream
computes, against the longer of the two alone) and `prefetch_serial` (the same without the side stream); training steps
from an idle device to an idle device, `gpt_step`, `resnet_step` and `foreach_adamw` (the optimizer alone), and
`gpt_memory`, the peak of bytes in a step of that GPT (see _training.py).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import _training
import torch
import torch_mojo_backend

Measure = Callable[[], float]


def per_call(call: Callable[[], object], count: int, after: Callable[[], object] = lambda: None) -> Measure:
    """Seconds of one call, the mean of `count`; `after` is not timed."""

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        seconds = (time.perf_counter() - start) / count
        after()
        return seconds

    return measure


def medians(measures: list[Measure], rounds: int) -> list[float]:
    """The median of each, measured in turn after one round to warm up."""
    for measure in measures:
        measure()
    samples: list[list[float]] = [[] for _ in measures]
    for _ in range(rounds):
        for measure, seen in zip(measures, samples, strict=True):
            seen.append(measure())
    return [statistics.median(seen) for seen in samples]


def row(name: str, ours: float, reference: float, unit: str) -> dict[str, object]:
    scale = {"us": 1e6, "ms": 1e3, "MiB": 1 / 2**20}[unit]
    return {"name": name, "ours": ours * scale, "reference": reference * scale, "ratio": ours / reference, "unit": unit}


def small_add(device: torch.device, rounds: int) -> dict[str, object]:
    def call(place: torch.device | str) -> Callable[[], object]:
        a, b = torch.ones(16, device=place), torch.ones(16, device=place)
        return lambda: a + b

    ours, reference = medians(
        [per_call(call(device), 200, torch.accelerator.synchronize), per_call(call("cpu"), 200)], 10 * rounds
    )
    return row("small_add", ours, reference, "us")


def empty_drop(device: torch.device, rounds: int) -> dict[str, object]:
    ours, reference = medians(
        [per_call(lambda: torch.empty(16, device=device), 500), per_call(lambda: torch.empty(16), 500)], 10 * rounds
    )
    return row("empty_drop", ours, reference, "us")


def large(
    name: str, op: Callable[..., object], sizes: list[int], inputs: int, device: torch.device, rounds: int
) -> dict[str, object]:
    cpu = [torch.randn(sizes) for _ in range(inputs)]
    ours = [x.to(device) for x in cpu]

    def on_device() -> None:
        op(*ours)
        torch.accelerator.synchronize()

    seconds = medians([per_call(on_device, 1), per_call(lambda: op(*cpu), 1)], 3 * rounds)
    return row(name, *seconds, "ms")


def prefetch(device: torch.device, rounds: int) -> list[dict[str, object]]:
    """Batches are uploaded and used. The compute of one batch is sized so that it takes as long as its upload."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        batches = [torch.randn(2 << 20).pin_memory() for _ in range(24)]  # the first upload overlaps nothing
        resident = batches[0].to(device)
        weight = torch.randn(256, 256, device=device)
        main, side = torch.accelerator.current_stream(), torch.Stream(device)

        def compute(steps: int, x: torch.Tensor) -> None:
            y = x[: 256 * 256].view(256, 256)
            for _ in range(steps):
                y = y @ weight

        def serial(steps: int) -> None:
            for batch in batches:
                compute(steps, batch.to(device, non_blocking=True))
            torch.accelerator.synchronize()

        def overlapped(steps: int) -> None:
            def upload(batch: torch.Tensor) -> torch.Tensor:
                with side:
                    return batch.to(device, non_blocking=True)

            following = upload(batches[0])
            for index in range(len(batches)):
                main.wait_stream(side)
                current = following
                current.record_stream(main)
                if index + 1 < len(batches):
                    following = upload(batches[index + 1])
                compute(steps, current)
            torch.accelerator.synchronize()

        def only_compute(steps: int) -> None:
            for _ in batches:
                compute(steps, resident)
            torch.accelerator.synchronize()

        def runs(loop: Callable[[int], None], steps: int) -> Measure:
            return per_call(lambda: loop(steps), 1)

        # The upload alone is the overlapped loop without its compute.
        upload, ten = medians([runs(overlapped, 0), runs(only_compute, 10)], rounds)
        steps = max(1, round(10 * upload / ten))
        upload, computing, both, one_by_one = medians(
            [runs(overlapped, 0), runs(only_compute, steps), runs(overlapped, steps), runs(serial, steps)], rounds
        )
    finally:
        torch.set_num_threads(threads)
    reference = max(upload, computing)
    return [row("prefetch", both, reference, "ms"), row("prefetch_serial", one_by_one, reference, "ms")]


def training(
    name: str, make: Callable[[torch.device | str], _training.Step], device: torch.device, rounds: int
) -> dict[str, object]:
    on_device, on_cpu = make(device), make("cpu")

    def step() -> None:
        on_device()
        torch.accelerator.synchronize()

    step(), on_cpu()  # the optimizer's state is made
    return row(name, *medians([per_call(step, 1), per_call(on_cpu, 1)], 3 * rounds), "ms")


def gpt_memory(device: torch.device) -> dict[str, object]:
    ours = _training.peak_on_device(_training.gpt_step, device)
    return row("gpt_memory", ours, _training.peak_on_cpu(_training.gpt_step), "MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the rows there")
    parser.add_argument("--only", metavar="NAME", nargs="*", help="only the rows that are named")
    parser.add_argument("--rounds", type=int, default=9, help="how often each side is measured, times a factor a row")
    arguments = parser.parse_args()
    torch_mojo_backend.register_mojo_devices()
    device = torch.device("mojo", 0)
    rounds = arguments.rounds
    measures: dict[str, Callable[[], list[dict[str, object]]]] = {
        "small_add": lambda: [small_add(device, rounds)],
        "empty_drop": lambda: [empty_drop(device, rounds)],
        "large_add": lambda: [large("large_add", torch.add, [1 << 24], 2, device, rounds)],
        "large_mm": lambda: [large("large_mm", torch.mm, [1024, 1024], 2, device, rounds)],
        "large_softmax": lambda: [large("large_softmax", lambda x: x.softmax(-1), [4096, 4096], 1, device, rounds)],
        "prefetch": lambda: prefetch(device, rounds),
        "gpt_step": lambda: [training("gpt_step", _training.gpt_step, device, rounds)],
        "resnet_step": lambda: [training("resnet_step", _training.resnet_step, device, rounds)],
        "foreach_adamw": lambda: [training("foreach_adamw", _training.adamw_step, device, rounds)],
        "gpt_memory": lambda: [gpt_memory(device)],
    }
    unknown = set(arguments.only or ()) - set(measures)
    if unknown:
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(measures)}")
    rows = []
    for name, measure in measures.items():
        if arguments.only and name not in arguments.only:
            continue
        rows += (new := measure())
        for entry in new:
            print(
                f"{entry['name']:16} {entry['ours']:10.3f} {entry['unit']}  "
                f"reference {entry['reference']:10.3f}  ratio {entry['ratio']:.2f}",
                flush=True,
            )
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
