"""Forks and exits: rows G-04 and G-05."""

import pytest
from contract import contract
from helpers import run_python

FORK = """
import os, sys
def in_child(function):
    # The exit status of a forked child: 0 if the function returns, 9 for an unexpected exception.
    sys.stdout.flush(); sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        status = 9
        try:
            function(); status = 0
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr)
        finally:
            sys.stderr.flush(); os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
"""


@contract("G-04")
def test_asking_starts_no_thread_and_opens_no_device():
    run_python(
        """
        import os, torch
        import torch_mojo_backend
        threads = len(os.listdir("/proc/self/task"))
        torch_mojo_backend.register_mojo_devices()
        from torch_mojo_backend import _C
        A = torch.accelerator
        assert A.is_available() and A.device_count() == 2 and torch.mojo.is_available()
        A.current_accelerator(True); torch.get_device_module(); A.current_device_index(); A.current_stream()
        A.memory_stats(); A.memory_allocated(); A.empty_cache(); A.synchronize()
        torch.mojo.get_rng_state_all(); torch.manual_seed(3); torch.Event(); torch.zeros(2).is_pinned()
        assert len(os.listdir("/proc/self/task")) == threads
        assert not _C.is_open(0) and not _C.is_open(1)
        """,
        register=False,
        HOST_DEVICES="2",
    )


@contract("G-04")
def test_a_child_forked_after_asking_may_use_the_device():
    run_python(
        FORK
        + """
torch.accelerator.device_count(); torch.accelerator.is_available(); torch.accelerator.current_device_index()
torch.manual_seed(1)
def use():
    assert not torch.mojo._is_in_bad_fork()
    s = torch.Stream("mojo")
    with s:
        x = torch.arange(5, device="mojo") + 1
        assert x.sum().item() == 15
    e = s.record_event(); e.synchronize()
    torch.zeros(3).pin_memory()
assert in_child(use) == 0 and in_child(use) == 0
use()
"""
    )


@contract("G-04")
def test_a_child_forked_after_use_gets_one_clear_error_and_the_parent_is_unharmed():
    done = run_python(
        FORK
        + """
x = torch.zeros(4, device="mojo"); s = torch.Stream("mojo"); e = s.record_event()
pinned = torch.zeros(4).pin_memory()
torch.accelerator.synchronize()
uses = {
    "factory": lambda: torch.ones(1, device="mojo"), "op": lambda: x + 1, "item": lambda: x[0].item(),
    "upload": lambda: torch.ones(1).to("mojo"), "download": lambda: x.cpu(), "in place": lambda: x.add_(1),
    "new stream": lambda: torch.Stream("mojo"), "stream.synchronize": s.synchronize, "stream.query": s.query,
    "event.synchronize": e.synchronize, "event.record": lambda: torch.Event().record(),
    "wait": lambda: s.wait_stream(torch.accelerator.current_stream()),
    "synchronize": torch.accelerator.synchronize, "pin": lambda: torch.ones(3).pin_memory(),
    "init": torch.mojo.init, "properties": torch.mojo.get_device_properties, "mem": torch.mojo.mem_get_info,
}
def refused(use):
    assert torch.mojo._is_in_bad_fork() and torch.accelerator.is_available()
    try:
        use()
    except RuntimeError as error:
        text = str(error)
        assert text.startswith("mojo backend: ") and "fork" in text and "spawn" in text, text
        return
    raise AssertionError("allowed")
wrong = [name for name, use in uses.items() if in_child(lambda: refused(use)) != 0]
assert not wrong, wrong
def unharmful():
    global x, s, e, pinned
    torch.manual_seed(1); torch.mojo.manual_seed_all(2); torch.seed()
    assert torch.zeros(3).is_pinned() is False
    del x, s, e, pinned                       # memory, streams and events of the parent are dropped in silence
    assert torch.ones(5).sum() == 5
assert in_child(unharmful) == 0
assert in_child(lambda: None) == 0
assert (x + 1).sum().item() == 4 and e.query() and s.query()
"""
    )
    assert done.returncode == 0


@contract("G-04")
def test_a_fork_while_work_is_pending():
    run_python(
        FORK
        + """
from torch_mojo_backend.testing import Gate
x = torch.zeros(4, device="mojo")
s = torch.Stream("mojo")
gate = Gate(s)
with s:
    x.add_(1)
def refused():
    for use in (s.synchronize, lambda: x.cpu()):
        try:
            use()
        except RuntimeError:
            continue
        raise AssertionError("allowed")
assert in_child(refused) == 0
gate.open(); s.synchronize()
with s:
    assert x.tolist() == [1] * 4
"""
    )


@contract("G-04")
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_multiprocessing(method):
    code = f"""
import sys, torch, torch.multiprocessing as mp
def work(queue):
    import torch_mojo_backend
    torch_mojo_backend.register_mojo_devices()
    try:
        queue.put(torch.ones(7, device="mojo").sum().item())
    except RuntimeError as error:
        queue.put(str(error))
if __name__ == "__main__":
    import torch_mojo_backend
    torch_mojo_backend.register_mojo_devices()
    torch.ones(1, device="mojo").item()
    context = mp.get_context({method!r})
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start(); found = queue.get(timeout=60); process.join(60)
    assert process.exitcode == 0
    if {method!r} == "fork":
        assert "fork" in found and "spawn" in found, found
    else:
        assert found == 7.0, found
"""
    import pathlib
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "program.py"
        path.write_text(code)
        run_python(f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')", register=False)


PENDING = """
import atexit, threading
from torch_mojo_backend.testing import Gate
streams = [torch.Stream("mojo") for _ in range(5)]
events = []
x = torch.zeros(1 << 12, device="mojo")
pinned = torch.zeros(1 << 12).pin_memory()
for s in streams:
    with s:
        for _ in range(50):
            x.add_(1); pinned.copy_(x, non_blocking=True)
        events.append(s.record_event())
"""

HELD = {
    "idle": "torch.accelerator.synchronize()\n",
    "busy": "",
    "asleep": "with streams[0]:\n    torch.mojo._sleep(int(20000 * 1.5e6)); x.add_(1)\n",
    "behind a gate": "gate = Gate(streams[0])\nwith streams[0]:\n    x.add_(1)\n"
    "events.append(streams[0].record_event()); streams[1].wait_event(events[-1])\n",
    "failed": "torch.nn.functional.embedding(torch.tensor([9], device='mojo'), torch.ones(4, 2, device='mojo'))\n",
}

ENDS = {
    "end": ("", 0),
    "exit": ("import sys; sys.exit(3)", 3),
    "exception": ("raise KeyError('x')", 1),
    "os._exit": ("import os; os._exit(4)", 4),
    "atexit": ("atexit.register(lambda: print(torch.ones(3, device='mojo').shape))", 0),
    "daemon thread": (
        "def work():\n    while True:\n        y = torch.ones(100, device='mojo') * 2; y.record_stream(streams[1])\n"
        "threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]\n[t.start() for t in threads]\n",
        0,
    ),
    "daemon thread in a wait": (
        "ready = threading.Event()\ndef work():\n    ready.set()\n    events[-1].synchronize(); x.cpu()\n"
        "t = threading.Thread(target=work, daemon=True); t.start(); ready.wait()\n",
        0,
    ),
    "unhandled in thread": ("t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()", 0),
    "objects in a cycle": ("class C: pass\nc = C(); c.self = c; c.kept = (x, events, streams, pinned)\n", 0),
    "objects in a module": ("import sys; sys.kept = (x, events, streams, pinned, torch.Generator('mojo'))\n", 0),
}


# Each state of the device with a plain end, each end with the state that is the hardest.
PAIRS = [(held, "end") for held in HELD] + [("behind a gate", end) for end in ENDS if end != "end"]
PAIRS += [("busy", "daemon thread"), ("failed", "exit"), ("asleep", "daemon thread in a wait")]


@contract("G-05")
@pytest.mark.parametrize("held, end", PAIRS)
def test_the_process_exits_with_the_right_code(held, end):
    code, status = ENDS[end]
    done = run_python(PENDING + HELD[held] + code, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    for word in ("terminate called", "Segmentation", "Fatal Python error", "Aborted", "Assertion"):
        assert word not in done.stderr


@contract("G-05")
def test_killed_by_a_signal():
    done = run_python(PENDING + "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", check=False)
    assert done.returncode == -15


@contract("G-05")
def test_the_device_after_shutdown_is_one_clear_error():
    run_python(
        """
        from torch_mojo_backend import _C
        x = torch.ones(3, device="mojo"); s = torch.Stream("mojo"); e = s.record_event()
        _C.shut_down()
        for use in (lambda: x + 1, s.synchronize, lambda: torch.ones(1, device="mojo"), x.cpu):
            try:
                use()
            except RuntimeError as error:
                assert str(error).startswith("mojo backend: "), error
                continue
            raise SystemExit("allowed")
        del x, s, e
        """
    )


@contract("G-05")
def test_idle_devices_use_no_processor_time():
    run_python(
        """
        import time
        from torch_mojo_backend.testing import Gate
        streams = [torch.Stream("mojo") for _ in range(20)]
        gate = Gate(streams[0])
        for a, b in zip(streams, streams[1:]):
            b.wait_stream(a)                  # parked, not polling
        torch.ones(4, device="mojo").sum().item()
        before = time.process_time()
        time.sleep(1.0)
        used = time.process_time() - before
        gate.open()
        assert used < 0.05, used
        """
    )
