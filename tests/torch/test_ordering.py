"""How work is ordered, what blocks the host, and how failures of queued work travel: rows O-01 to O-05, O-07, O-08."""

import pytest
import torch
from contract import contract
from helpers import in_thread, opened_meanwhile, run_python
from torch_mojo_backend.testing import Gate, assert_no_host_wait, schedule


def pinned(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype).pin_memory()


@contract("O-01")
@pytest.mark.parametrize(
    "op",
    [
        lambda x: x + 1,
        lambda x: x.add_(1),
        lambda x: torch.add(x, 1, out=torch.empty_like(x)),
        lambda x: x @ x.t(),
        lambda x: x.sum(0),
        lambda x: torch.cat([x, x]),
        lambda x: x.softmax(-1),
        lambda x: x.clone(),
        lambda x: x.to(torch.float64),
        lambda x: x.t().contiguous(),
        lambda x: x.fill_(3),
        lambda x: torch.zeros_like(x),
        lambda x: torch.where(x > 0, x, -x),
        lambda x: torch.nn.functional.layer_norm(x, (8,)),
        lambda x: x[2:4].copy_(x[:2]),
        lambda x: torch.randn(8, 8, device=x.device),
        lambda x: torch.arange(8, device=x.device),
    ],
)
def test_an_op_is_queued_and_the_call_returns_at_once(device, op):
    x = torch.ones(8, 8, device=device)
    torch.accelerator.synchronize()
    with Gate(), assert_no_host_wait():
        result = op(x)
        assert not torch.accelerator.current_stream().query()
    assert result.device == device
    torch.accelerator.synchronize()


@contract("O-01")
def test_a_queued_op_has_not_run(device, stream):
    x = torch.zeros(4, device=device)
    torch.accelerator.synchronize()
    with Gate(stream):
        with stream:
            x.add_(1)
        assert x.tolist() == [0] * 4, "read on the default stream, which has not waited"
    stream.synchronize()
    assert x.tolist() == [1] * 4


@contract("O-01")
def test_an_op_runs_on_the_current_stream_of_its_own_device(device, other):
    far = torch.Stream(other)
    y = torch.zeros(4, device=other)
    torch.accelerator.synchronize(1)
    torch.accelerator.set_stream(far)
    torch.accelerator.set_device_index(0)
    with Gate(far):
        y.add_(1)  # the current device is the first; the op belongs on `far`
        assert not far.query() and torch.mojo.default_stream(1).query()
    far.synchronize()
    torch.accelerator.set_stream(torch.mojo.default_stream(1))
    torch.accelerator.set_device_index(0)
    assert y.tolist() == [1] * 4


@contract("O-02", "M-10")
@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_ops_of_one_stream_run_in_the_order_of_the_calls(device, stream, seed):
    def steps(x: torch.Tensor) -> torch.Tensor:
        for i in range(200):
            x = x * 3 + i if i % 3 else x.remainder_(1009)
            if i % 7 == 0:
                x[i % 5 :].sub_(x[: 5 - i % 5].clone())
        return x

    expected = steps(torch.arange(5))
    with schedule(seed, device):
        x = torch.arange(5, device=device)
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            assert torch.equal(steps(x).cpu(), expected)


@contract("O-03")
def test_the_default_stream_is_current_at_the_start():
    run_python(
        """
        for i in range(2):
            s = torch.accelerator.current_stream(i)
            assert (s.stream_id, s.device_index) == (0, i) and s == torch.mojo.default_stream(i)
        """,
        HOST_DEVICES="2",
    )


@contract("O-03")
def test_each_thread_has_its_own_current_stream(device, stream):
    torch.accelerator.set_stream(stream)
    second = torch.Stream(device)
    assert in_thread(lambda: torch.accelerator.current_stream().stream_id) == 0
    in_thread(lambda: torch.accelerator.set_stream(second))
    assert torch.accelerator.current_stream() == stream
    torch.accelerator.set_stream(torch.mojo.default_stream())


READS = {
    "item": lambda x: x[0].item() == 7,
    "tolist": lambda x: x.tolist() == [7] * 64,
    "cpu": lambda x: bool((x.cpu() == 7).all()),
    "bool": lambda x: bool((x == 7).all()),
    "copy_": lambda x: bool((torch.empty(64).copy_(x) == 7).all()),
    "copy_ pinned": lambda x: bool((pinned(64).copy_(x) == 7).all()),
    "numpy": lambda x: bool((x.cpu().numpy() == 7).all()),
    "repr": lambda x: "7." in repr(x),
    "equal": lambda x: torch.equal(x, torch.full_like(x, 7)),
    "nonzero": lambda x: len(x.nonzero()) == 64,
    "storage": lambda x: bool((torch.tensor(x.untyped_storage().cpu().tolist()[:4]) != 0).any()),
}


@contract("O-04")
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reading_a_value_waits_for_the_current_stream(device, stream, read):
    x = torch.zeros(64, device=device)
    torch.accelerator.synchronize()
    with stream:
        gate = Gate()
        x.fill_(7)
        with opened_meanwhile(gate):
            assert read(x)


@contract("O-04")
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_reading_a_value_waits_for_no_other_stream(device, stream, read):
    x = torch.full((64,), 7.0, device=device)
    with Gate(stream):
        with stream:
            torch.zeros(1, device=device)
        assert read(x)  # else the gate opens by itself and raises TimeoutError
        assert not stream.query()


@contract("O-05")
def test_synchronizing_a_device_waits_for_all_its_streams(device):
    streams = [torch.Stream(device, priority=p) for p in (0, -1, 0)]
    gates = [Gate(s) for s in streams]
    x = torch.zeros(3, device=device)
    torch.mojo.default_stream().synchronize()
    for i, s in enumerate(streams):
        with s:
            x[i : i + 1].fill_(1)
    with opened_meanwhile(*gates):
        torch.accelerator.synchronize()
    assert all(s.query() for s in streams) and x.tolist() == [1] * 3


@contract("O-05")
def test_synchronizing_a_device_waits_for_no_other_device(device, other):
    far = torch.Stream(other)
    torch.zeros(1, device=device)
    with Gate(far):
        torch.accelerator.synchronize(0)
        assert not far.query()
    with Gate(torch.accelerator.current_stream(0)):
        torch.accelerator.synchronize(1)


@contract("O-05")
def test_synchronizing_a_stream_waits_for_that_stream_alone(device, stream):
    second = torch.Stream(device)
    with Gate(second):
        with opened_meanwhile(Gate(stream)):
            stream.synchronize()
        assert stream.query() and not second.query()


@contract("O-05", "E-02")
def test_synchronizing_an_event_waits_for_the_work_before_it_alone(device, stream):
    first = Gate(stream)
    event = stream.record_event()
    with Gate(stream):
        assert not event.query()
        with opened_meanwhile(first):
            event.synchronize()
        assert event.query() and not stream.query()


WAITS = {
    "stream.synchronize": "s.synchronize()",
    "accelerator.synchronize": "torch.accelerator.synchronize()",
    "mojo.synchronize": "torch.mojo.synchronize(0)",
    "event.synchronize": "e.synchronize()",
    "item": "torch.accelerator.set_stream(s); x[0].item()",
    "cpu": "torch.accelerator.set_stream(s); x.cpu()",
    "tolist": "torch.accelerator.set_stream(s); x.tolist()",
    "copy_": "torch.accelerator.set_stream(s); h.copy_(x)",
    "nonzero": "torch.accelerator.set_stream(s); x.nonzero()",
    "storage copy": "torch.accelerator.set_stream(s); torch.UntypedStorage(16).copy_(x.untyped_storage())",
    "save": "torch.accelerator.set_stream(s); torch.save(x, io.BytesIO())",
    "pickle": "torch.accelerator.set_stream(s); pickle.dumps(x)",
    "deepcopy to cpu": "torch.accelerator.set_stream(s); copy.deepcopy(x).cpu()",
}


@contract("O-07")
def test_a_wait_holds_neither_a_lock_nor_the_gil():
    # In a process of its own: where a wait holds the GIL, nothing in the process runs on, a timeout neither.
    code = """
import copy, io, pickle, sys, threading, time
from torch_mojo_backend.testing import Gate
y, p = torch.zeros(4, device="mojo"), torch.zeros(4).pin_memory()

def asleep(thread):
    with open(f"/proc/self/task/{thread.native_id}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "S"

def check(name, wait):
    print(name, flush=True)
    x, h = torch.zeros(4, device="mojo"), torch.empty(4)
    torch.accelerator.synchronize()
    s, t = torch.Stream("mojo"), torch.Stream("mojo")
    gate = Gate(s)
    with s:
        x.fill_(1)
    e = s.record_event()
    ended = threading.Event()
    def run():
        wait(s, e, x, h)
        ended.set()
    waiter = threading.Thread(target=run, daemon=True)
    waiter.start()
    calm = 0
    while calm < 20:      # until it sleeps, and goes on sleeping, it may not have come to its wait
        time.sleep(0.002)
        calm = calm + 1 if asleep(waiter) else 0
    assert not ended.is_set()
    for stream in (s, t, torch.accelerator.current_stream()):
        with stream:
            z = torch.ones(1 << 16, device="mojo"); z.mul_(2).add_(1)
            z.record_stream(t); del z
            p.copy_(y, non_blocking=True); y.copy_(p, non_blocking=True)
        f = stream.record_event(); t.wait_event(f); t.wait_stream(stream); f.query(); stream.query()
    torch.Stream("mojo"); torch.empty(4, pin_memory=True); torch.accelerator.memory_stats()
    torch.accelerator.empty_cache()
    assert torch.ones(4, device="mojo").sum().item() == 4     # another stream's wait ends meanwhile
    assert not ended.is_set() and not s.query()
    gate.open()
    assert ended.wait(60)
    torch.accelerator.synchronize()

"""
    for name, wait in WAITS.items():
        code += f"def wait(s, e, x, h):\n    {wait}\ncheck({name!r}, wait)\n"
    run_python(code)


def bad_embedding(device: torch.device) -> torch.Tensor:
    """Fails on the device: IndexError, as on CPU."""
    return torch.nn.functional.embedding(torch.tensor([0, 9], device=device), torch.ones(4, 2, device=device))


def bad_gather(device: torch.device) -> torch.Tensor:
    """Fails on the device: RuntimeError, as on CPU."""
    return torch.gather(torch.ones(4, device=device), 0, torch.tensor([0, 9], device=device))


def test_the_failing_ops_fail_on_cpu_as_the_tests_expect():
    with pytest.raises(IndexError):
        bad_embedding(torch.device("cpu"))
    with pytest.raises(RuntimeError) as caught:
        bad_gather(torch.device("cpu"))
    assert caught.type is RuntimeError


SYNCHRONIZING = {
    "stream": lambda s, e, x: s.synchronize(),
    "device": lambda s, e, x: torch.accelerator.synchronize(),
    "event": lambda s, e, x: e.synchronize(),
    "item": lambda s, e, x: x[0].item(),
    "cpu": lambda s, e, x: x.cpu(),
    "tolist": lambda s, e, x: x.tolist(),
    "copy_": lambda s, e, x: torch.empty(4).copy_(x),
}


@contract("O-08")
@pytest.mark.parametrize("wait", SYNCHRONIZING.values(), ids=SYNCHRONIZING)
def test_a_failure_is_raised_once_with_the_type_and_the_name_of_the_op(device, stream, wait):
    x = torch.ones(4, device=device)
    torch.accelerator.synchronize()
    with stream:
        bad_embedding(device)
        event = stream.record_event()
        with pytest.raises(IndexError, match=r"embedding|index_select"):
            wait(stream, event, x)
        stream.synchronize()
        torch.accelerator.synchronize()
        event.synchronize()
        assert (x + 1).tolist() == [2] * 4, "later work of the stream runs"


@contract("O-08")
def test_a_failure_waits_for_whoever_synchronizes(device, stream):
    with stream, assert_no_host_wait():
        gate = Gate()
        bad_embedding(device)
        x = torch.ones(4, device=device) + 1  # queued after the failing op: runs
        event = stream.record_event()
    gate.open()
    while not (stream.query() and event.query()):  # never raises
        pass
    assert stream.query() and event.query()
    with pytest.raises(IndexError):
        event.synchronize()
    stream.synchronize()
    with stream:
        assert x.tolist() == [2] * 4


@contract("O-08")
def test_an_event_recorded_before_the_failure_does_not_raise_it(device, stream):
    with stream:
        before = stream.record_event()
        bad_embedding(device)
        before.synchronize()
        with pytest.raises(IndexError):
            stream.synchronize()


@contract("O-08")
def test_a_failure_belongs_to_its_stream(device, stream):
    with stream:
        bad_embedding(device)
    assert torch.ones(4, device=device).sum().item() == 4
    torch.mojo.default_stream().synchronize()
    second = torch.Stream(device)
    second.wait_stream(stream)
    second.synchronize()
    with pytest.raises(IndexError):
        stream.synchronize()


@contract("O-08")
def test_a_device_raises_the_oldest_failure_and_keeps_the_rest(device, stream):
    second = torch.Stream(device)
    with second:
        bad_gather(device)
    while not second.query():
        pass
    with stream:
        bad_embedding(device)
    while not stream.query():
        pass
    with pytest.raises(RuntimeError) as caught:
        torch.accelerator.synchronize()
    assert caught.type is RuntimeError and "gather" in str(caught.value)
    with pytest.raises(IndexError):
        torch.accelerator.synchronize()
    torch.accelerator.synchronize()


@contract("O-08")
def test_argument_errors_raise_at_the_call_as_on_cpu(device):
    a, b = torch.ones(2, 3), torch.ones(4, 5)
    for use in (
        lambda a, b: a @ b,
        lambda a, b: a + b,
        lambda a, b: torch.cat([a, b]),
        lambda a, b: a.sum(7),
        lambda a, b: a.view(7),
        lambda a, b: torch.nn.functional.conv2d(a, b),
    ):
        with pytest.raises(Exception) as expected:
            use(a, b)
        with pytest.raises(expected.type) as found, assert_no_host_wait():
            use(a.to(device), b.to(device))
        assert str(found.value) == str(expected.value)
    torch.accelerator.synchronize()


@contract("O-08")
def test_a_failure_nobody_asks_for_does_not_end_the_process():
    done = run_python(
        """
        torch.nn.functional.embedding(torch.tensor([9], device="mojo"), torch.ones(4, 2, device="mojo"))
        while not torch.accelerator.current_stream().query():
            pass
        assert torch.ones(3, device="mojo:0").device.type == "mojo"
        print("alive")
        """
    )
    assert "alive" in done.stdout


@contract("O-08")
def test_copying_to_a_smaller_tensor_raises_at_the_call(device):
    big, small = torch.ones(8, device=device), torch.ones(4, device=device)
    for destination, source in ((small, big), (torch.ones(4), big), (small, torch.ones(8)), (pinned(4), big)):
        for non_blocking in (False, True):
            with pytest.raises(RuntimeError, match="size"):
                destination.copy_(source, non_blocking=non_blocking)
    with pytest.raises((RuntimeError, ValueError)):
        small.untyped_storage().copy_(big.untyped_storage()[:3])
    torch.accelerator.synchronize()
    assert small.tolist() == [1] * 4
