"""Helpers of the tests of the torch side."""

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

PRELUDE = "import torch, torch_mojo_backend\ntorch_mojo_backend.register_mojo_devices()\n"


def drain() -> None:
    """Makes every device idle and takes the failures that its streams kept."""
    for i in range(torch.accelerator.device_count()):
        while True:
            try:
                torch.accelerator.synchronize(i)
                break
            except Exception:
                continue


def run_python(
    code: str, *, register: bool = True, timeout: float = 120, check: bool = True, stdin: str = "", **settings: str
) -> subprocess.CompletedProcess:
    """Runs `code` in a fresh interpreter; `HOST_DEVICES="3"` stands for TORCH_MOJO_BACKEND_HOST_DEVICES."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_MOJO_BACKEND_HOST_")}
    env.update({f"TORCH_MOJO_BACKEND_{name}": value for name, value in settings.items()})
    here = os.path.dirname(os.path.abspath(__file__))
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [here, env.get("PYTHONPATH")]))
    text = (PRELUDE if register else "") + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", text], env=env, input=stdin, capture_output=True, text=True, timeout=timeout
    )
    if check and done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


@contextlib.contextmanager
def opened_meanwhile(*gates: Any, delay: float = 0.05) -> Iterator[None]:
    """Opens the gates from another thread while the block waits for them.

    The delay only gives a block that wrongly does not wait the time to go wrong; no outcome depends on it otherwise.
    """
    timer = threading.Timer(delay, lambda: [gate.open() for gate in gates])
    timer.start()
    try:
        yield
    finally:
        timer.join()


def in_thread(function: Callable[[], Any], timeout: float = 60) -> Any:
    """The result of `function` called in a new thread; its exception is raised here."""
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, function()))
        except BaseException as failure:
            outcome.append((False, failure))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout)
    assert outcome, f"no end in {timeout} s"
    succeeded, value = outcome[0]
    if not succeeded:
        raise value
    return value


def thread_count() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("Threads:"))


def resident_bytes() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) * 1024


def order_of_tasks(streams: int = 6, tasks: int = 12) -> tuple[int, ...]:
    """The order in which the tasks of unordered streams ran: each task overwrites one number and copies it on."""
    device = torch.device("mojo", 0)
    hashed = torch.ones(1, dtype=torch.int64, device=device)
    torch.accelerator.synchronize()
    queues = [torch.Stream(device) for _ in range(streams)]
    for step in range(tasks):
        for i, s in enumerate(queues):
            with s:
                # One task: hashed = hashed * hashed + number, modulo 2**64, which depends on the order.
                torch.addcmul(torch.full_like(hashed, step * streams + i + 1), hashed, hashed, out=hashed)
        if step == tasks // 2:
            queues[0].wait_stream(queues[1])
            queues[2].wait_event(queues[3].record_event())
    torch.accelerator.synchronize()
    return tuple(hashed.tolist())
