"""The adversarial schedule: row M-10. Right programs stay right under every seed; wrong ones go wrong under some.

The programs are the reference examples, sized down, with switches that leave one wait or one `record_stream` out. Each
run has values of its own, so that what an earlier run left in memory is never right by accident.
"""

import functools
from collections.abc import Callable

import pytest
import torch
from contract import contract
from helpers import order_of_tasks, run_python
from torch_mojo_backend.testing import schedule

SEEDS = range(200)


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.allclose(found, expected, rtol=1e-4, atol=1e-5)


def two_streams(
    seed: int, *, first_wait: bool = True, join: bool = True, record: bool = True, drop_early: bool = False
) -> bool:
    """Whether the two-stream example gives the right result."""
    host = torch.randn(96, 96, generator=torch.Generator().manual_seed(seed))
    device = torch.device("mojo", 0)
    main = torch.accelerator.current_stream()
    side = torch.Stream(device)

    x = host.to(device)
    if first_wait:
        side.wait_stream(main)
    with side:
        col_max = x.abs().amax(dim=0)
    y = x @ x
    if drop_early:
        if record:
            x.record_stream(side)
        del x
        overwriting = [torch.full_like(y, -1.0) for _ in range(2)]  # of the size of x, on main
    if join:
        main.wait_stream(side)
    if record:
        if not drop_early:
            x.record_stream(side)
        col_max.record_stream(main)
    result = (y / col_max).cpu()
    if drop_early:
        del overwriting
    return close(result, host @ host / host.abs().amax(dim=0))


def prefetch(seed: int, *, wait: bool = True, record: bool = True) -> bool:
    """Whether the prefetch example gives the right losses."""
    generator = torch.Generator().manual_seed(seed)
    weight_host = torch.randn(64, 16, generator=generator)
    batches = [torch.randn(128, 64, generator=generator).pin_memory() for _ in range(6)]
    expected = torch.stack([(batch @ weight_host).square().mean() for batch in batches])

    device = torch.device("mojo", 0)
    main = torch.accelerator.current_stream()
    copy_stream = torch.Stream(device)
    weight = weight_host.to(device)

    def upload(batch: torch.Tensor) -> torch.Tensor:
        with copy_stream:
            return batch.to(device, non_blocking=True)

    losses = []
    next_batch = upload(batches[0])
    for i in range(len(batches)):
        if wait:
            main.wait_stream(copy_stream)
        batch = next_batch
        if record:
            batch.record_stream(main)
        if i + 1 < len(batches):
            next_batch = upload(batches[i + 1])
        losses.append((batch @ weight).square().mean())
    return close(torch.stack(losses).cpu(), expected)


def wrong_seeds(program: Callable[[int], bool], seeds: range = SEEDS, *, stop_at_first: bool = False) -> list[int]:
    wrong = []
    for seed in seeds:
        with schedule(seed):
            if not program(seed):
                wrong.append(seed)
        if wrong and stop_at_first:
            break
    return wrong


RIGHT = {
    "two streams": two_streams,
    "two streams, x dropped early": functools.partial(two_streams, drop_early=True),
    "prefetch": prefetch,
}

WRONG = {
    "two streams without the first wait": functools.partial(two_streams, first_wait=False),
    "two streams without the join": functools.partial(two_streams, join=False),
    "two streams, x dropped early without record_stream": functools.partial(two_streams, drop_early=True, record=False),
    "prefetch without the wait": functools.partial(prefetch, wait=False),
    "prefetch without record_stream": functools.partial(prefetch, record=False),
}


@contract("M-10", "M-01", "M-02")
@pytest.mark.parametrize("program", RIGHT.values(), ids=RIGHT)
def test_a_right_program_is_right_under_every_seed(device, program):
    assert wrong_seeds(program) == []


@contract("M-10", "M-01", "M-02")
@pytest.mark.parametrize("program", WRONG.values(), ids=WRONG)
def test_a_wrong_program_goes_wrong_under_some_seed(device, program):
    assert wrong_seeds(program, stop_at_first=True), f"right under all of {len(SEEDS)} seeds"


@contract("M-10")
def test_two_runs_with_one_seed_run_the_tasks_in_the_same_order(device):
    orders = {}
    for seed in range(30):
        runs = set()
        for _ in range(3):
            with schedule(seed):
                runs.add(order_of_tasks())
        assert len(runs) == 1, f"seed {seed}: {len(runs)} orders"
        orders[seed] = runs.pop()
    assert len(set(orders.values())) > 20, "seeds make schedules of their own"


@contract("M-10")
def test_the_order_does_not_depend_on_how_fast_the_caller_is(device):
    import time

    def program(pause: float) -> tuple[int, ...]:
        hashed = torch.ones(1, dtype=torch.int64, device=device)
        torch.accelerator.synchronize()
        queues = [torch.Stream(device) for _ in range(4)]
        for step in range(10):
            for i, s in enumerate(queues):
                with s:
                    torch.addcmul(torch.full_like(hashed, step * 4 + i + 1), hashed, hashed, out=hashed)
            time.sleep(pause)
        torch.accelerator.synchronize()
        return tuple(hashed.tolist())

    for seed in range(5):
        runs = set()
        for pause in (0.0, 0.003):
            with schedule(seed):
                runs.add(program(pause))
        assert len(runs) == 1, f"seed {seed}"


@contract("M-10")
def test_the_setting_gives_the_same_order_in_every_process():
    code = "from helpers import order_of_tasks; print([order_of_tasks() for _ in range(3)])"
    runs = [run_python(code, HOST_SCHEDULE=f"random:{seed}", HOST_WORKERS=w).stdout for seed, w in
            ((5, "1"), (5, "2"), (5, "4"), (6, "2"))]  # fmt: skip
    assert len(set(runs[:3])) == 1 and runs[3] != runs[0]


@contract("M-10")
def test_the_schedule_helper(device, stream):
    from torch_mojo_backend import _C

    with schedule(3), schedule(None, device):
        assert torch.ones(3, device=device).sum().item() == 3
    with pytest.raises(KeyError), schedule(3):
        raise KeyError
    with pytest.raises(IndexError), schedule(3), stream:
        torch.nn.functional.embedding(torch.tensor([9], device=device), torch.ones(4, 2, device=device))
    stream.synchronize()
    for text in ("random:x", "random:", "random:-1", "lifo"):
        with pytest.raises(RuntimeError, match="random"):
            _C.set_option(0, "schedule", text)
    with pytest.raises(RuntimeError, match="colour"):
        _C.set_option(0, "colour", "red")
    with stream:
        torch.mojo._sleep(int(200 * 1.5e6))
    with pytest.raises(RuntimeError, match="idle"):
        _C.set_option(0, "schedule", "random:1")
    stream.synchronize()


@contract("M-10", "S-08", "E-06")
@pytest.mark.parametrize("seed", range(40))
def test_ordered_programs_are_right_under_random_schedules(device, other, seed):
    """A random program over 4 streams and 2 devices that orders all it does; against the same on CPU."""
    import random

    r = random.Random(seed)
    streams = [torch.Stream(d) for d in (device, other) for _ in range(2)]
    events: list[torch.Event | None] = [None] * 4

    def ordered(a: torch.Stream, b: torch.Stream) -> None:
        """a's later work after b's earlier."""
        how = r.randrange(4)
        number = streams.index(b)
        if how == 0:
            a.wait_stream(b)
        elif how == 1:
            a.wait_event(b.record_event())
        elif how == 2:
            if events[number] is None:
                events[number] = torch.Event()
            events[number].record(b)
            events[number].wait(a)
            events[number].record(b)
        else:
            b.record_event().wait(a)

    with schedule(seed):
        tensors: list[tuple[torch.Tensor, torch.Tensor, torch.Stream]] = []  # on the device, on the CPU, last used by
        for s in streams:
            with s:
                value = torch.randn(64, generator=torch.Generator().manual_seed(seed))
                tensors.append((value.to(s.device), value.clone(), s))
        for _ in range(60):
            i, j = r.randrange(len(tensors)), r.randrange(len(tensors))
            (x, x_cpu, x_stream), (y, y_cpu, y_stream) = tensors[i], tensors[j]
            current = {d: r.choice([s for s in streams if s.device == d]) for d in (device, other)}
            for t, used in ((x, x_stream), (y, y_stream)):
                if current[t.device] != used:
                    ordered(current[t.device], used)
            with current[device], current[other]:
                kind = r.randrange(5)
                if kind == 0 and x.device == y.device:
                    z, z_cpu = x * 0.5 + y, x_cpu * 0.5 + y_cpu
                elif kind == 1:
                    z, z_cpu = x.to(r.choice([device, other]), copy=True), x_cpu.clone()
                elif kind == 2:
                    pinned = x.to("cpu", non_blocking=True)
                    z, z_cpu = pinned.to(x.device, non_blocking=True), x_cpu.clone()
                    del pinned
                elif kind == 3 and i != j:
                    x.copy_(y, non_blocking=True)
                    x_cpu.copy_(y_cpu)
                    z, z_cpu = x, x_cpu
                else:
                    z, z_cpu = x.abs().sqrt(), x_cpu.abs().sqrt()
            for t in (x, y):
                t.record_stream(current[t.device])
            # Whoever uses x or y next is ordered after this use too.
            tensors[i], tensors[j] = (x, x_cpu, current[x.device]), (y, y_cpu, current[y.device])
            if z is not x:
                tensors[r.randrange(len(tensors))] = (z, z_cpu, current[z.device])
            del x, y, z, t
        for i, (x, x_cpu, s) in enumerate(tensors):
            with s:
                assert close(x.cpu(), x_cpu), f"tensor {i} under seed {seed}"
