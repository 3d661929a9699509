"""DataLoader with pinned memory and worker processes: rows C-08 and G-04."""

import collections

import pytest
import torch
from contract import contract
from helpers import run_python
from torch.utils.data import DataLoader, TensorDataset


class Bag:
    def __init__(self, parts):
        self.x = torch.stack(parts)

    def pin_memory(self):
        self.x = self.x.pin_memory()
        return self


class Plain:
    def __init__(self, parts):
        self.x = torch.stack(parts)


class Dictionary(dict):
    pass


Pair = collections.namedtuple("Pair", "a b")

DATA = [torch.ones(2) * i for i in range(4)]


def bag(parts):
    return Bag(parts)


def plain(parts):
    return Plain(parts)


def pair(parts):
    return Pair(torch.stack(parts), ["s", parts[0], 3])


def dictionary(parts):
    return Dictionary(x=torch.stack(parts))


def packed(parts):
    return torch.nn.utils.rnn.pack_sequence(parts)


@contract("C-08", "G-04")
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_every_kind_are_pinned(device, workers):
    torch.ones(1, device=device).item()  # the workers are forked from a process that has used a device

    def first(collate):
        return next(iter(DataLoader(DATA, batch_size=2, collate_fn=collate, pin_memory=True, num_workers=workers)))

    assert first(bag).x.is_pinned() and not first(plain).x.is_pinned()
    found = first(pair)
    assert type(found) is Pair and found.a.is_pinned() and found.b[1].is_pinned() and found.b[::2] == ["s", 3]
    found = first(dictionary)
    assert type(found) is Dictionary and found["x"].is_pinned()
    assert first(packed).data.is_pinned()


@contract("C-08", "G-04")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pin", [False, True])
def test_an_epoch_arrives_whole(device, workers, pin):
    data = TensorDataset(torch.arange(256.0).view(64, 4), torch.arange(64))
    loader = DataLoader(data, batch_size=8, num_workers=workers, pin_memory=pin, persistent_workers=workers > 0)
    side = torch.Stream(device)
    for _ in range(2):
        total, count = torch.zeros((), device=device), 0
        for x, y in loader:
            assert x.is_pinned() == pin
            with side:
                x_device = x.to(device, non_blocking=True)
                y_device = y.to(device, non_blocking=True)
            torch.accelerator.current_stream().wait_stream(side)
            for t in (x_device, y_device):
                t.record_stream(torch.accelerator.current_stream())
            total += x_device.sum() + y_device.sum()
            count += len(x)
        assert count == 64 and total.item() == sum(range(256)) + sum(range(64))


@contract("C-08")
def test_pinning_happens_on_the_callers_device(device, other):
    with torch.accelerator.device_index(1):
        batch = next(iter(DataLoader(DATA, batch_size=2, pin_memory=True, num_workers=0)))
        assert batch.is_pinned() and torch.equal(batch.to("mojo", non_blocking=True).cpu(), batch)


@contract("G-05", "C-08")
@pytest.mark.parametrize("end, status", [("", 0), ("raise RuntimeError('x')", 1), ("import sys; sys.exit(0)", 0)])
def test_leaving_an_epoch_early(end, status):
    done = run_python(
        f"""
from torch.utils.data import DataLoader
torch.zeros(1, device="mojo")
its = [iter(DataLoader(torch.arange(4096.), batch_size=4, num_workers=2, pin_memory=True, persistent_workers=p))
       for p in (False, True)]
for it in its:
    next(it).to("mojo", non_blocking=True)
{end}
""",
        check=False,
        timeout=100,
    )
    assert done.returncode == status, done.stderr


@contract("G-04")
def test_workers_get_seeds_of_their_own(device):
    torch.ones(1, device=device).item()

    class Drawn(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, i):
            return torch.rand(3)

    batches = list(DataLoader(Drawn(), batch_size=1, num_workers=2))
    assert torch.cat(batches).unique().numel() == 24
