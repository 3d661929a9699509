"""Devices with one queue (Apple GPUs), as the host device's profile behaves: rows A-01 to A-04."""

from contract import contract
from helpers import run_python


def run(code: str) -> None:
    run_python("dev = torch.device('mojo', 0)\n" + code, HOST_PROFILE="single-queue")


@contract("A-01")
def test_every_stream_is_the_default_stream():
    run(
        """
main = torch.accelerator.current_stream()
for priority in (0, -1, 5):
    s = torch.Stream(dev, priority=priority)
    assert s.stream_id == 0 and s == main and hash(s) == hash(main)
assert torch.Stream() == torch.Stream(dev) == torch.mojo.default_stream()
with s:
    assert torch.accelerator.current_stream() == s
    with torch.Stream(dev):
        x = torch.ones(4, device=dev)
torch.accelerator.set_stream(s)
assert torch.accelerator.current_stream() == main and x.sum().item() == 4
with torch.mojo.stream(s):
    assert torch.mojo.current_stream() == main
least, greatest = torch.mojo.priority_range()
assert greatest <= torch.mojo.stream_priority(s) <= least
"""
    )


@contract("A-02")
def test_synchronizing_and_query():
    run(
        """
s = torch.Stream(dev)
x = torch.zeros(1 << 20, device=dev)
h = torch.zeros(1 << 20).pin_memory()
for i in range(20):
    x.add_(1)
    h.copy_(x, non_blocking=True)
    assert s.query() is True                 # waits for the queue
    assert bool((h == i + 1).all())
torch.mojo._sleep(int(30 * 1.5e6)); x.add_(1); h.copy_(x, non_blocking=True)
s.synchronize()
assert bool((h == 21).all())
torch.mojo._sleep(int(30 * 1.5e6)); x.add_(1); h.copy_(x, non_blocking=True)
torch.accelerator.synchronize()
assert bool((h == 22).all())
"""
    )


@contract("A-02")
def test_record_stream():
    run(
        """
x = torch.ones(1000, device=dev)
x.record_stream(torch.Stream(dev)); x[10:].record_stream(torch.accelerator.current_stream())
p = x.data_ptr(); del x
assert torch.zeros(1000, device=dev).data_ptr() == p       # one queue: nothing to wait for
"""
    )


@contract("A-03")
def test_uploads_are_complete_when_they_return():
    run(
        """
from torch_mojo_backend import _C
x = torch.zeros(1 << 20, device=dev)
for source in (torch.ones(1 << 20), torch.ones(1 << 20).pin_memory()):
    for non_blocking in (False, True):
        source.fill_(1)
        torch.mojo._sleep(int(20 * 1.5e6))
        x.copy_(source, non_blocking=non_blocking)
        source.fill_(9)                       # too late to be seen, had the copy been queued it would be
        assert bool((x == 1).all()), (source.is_pinned(), non_blocking)
        x.zero_()
        y = source.to(dev, non_blocking=non_blocking)
        source.fill_(1)
        assert bool((y == 9).all())
"""
    )


@contract("A-04")
def test_recording_an_event_raises():
    run(
        """
s = torch.Stream(dev)
for record in (
    lambda e: e.record(), lambda e: e.record(s), lambda e: s.record_event(), lambda e: s.record_event(e),
    lambda e: s.wait_stream(torch.accelerator.current_stream()),
    lambda e: torch.accelerator.current_stream().wait_stream(s),
    lambda e: torch.Event(enable_timing=True).record(),
):
    e = torch.Event(dev)
    assert e.query() is True and e.event_id == 0
    e.synchronize(); e.wait(); s.wait_event(e)
    try:
        record(e)
    except RuntimeError as error:
        assert str(error).startswith("mojo backend: events are not supported on the single-queue host device"), error
    else:
        raise SystemExit("recorded")
    assert e.query() is True and e.event_id == 0
    assert torch.ones(3, device=dev).sum().item() == 3
"""
    )


@contract("A-01", "A-02")
def test_ordinary_programs_run():
    run(
        """
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(dev)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = DataLoader(TensorDataset(torch.randn(64, 8), torch.zeros(64, 1)), batch_size=16, pin_memory=True)
first = last = None
for _ in range(20):
    for x, y in data:
        loss = (model(x.to(dev, non_blocking=True)) - y.to(dev, non_blocking=True)).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        first = first if first is not None else loss.item()
        last = loss.item()
assert last < first
"""
    )
