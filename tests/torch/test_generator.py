"""Random numbers: rows M-11 and R-04's functions for them."""

import pytest
import torch
from contract import contract
from helpers import run_python
from torch_mojo_backend.testing import Gate, assert_no_host_wait, schedule


@pytest.fixture(autouse=True)
def restored():
    states = torch.mojo.get_rng_state_all(), torch.get_rng_state()
    yield
    torch.mojo.set_rng_state_all(states[0])
    torch.set_rng_state(states[1])


def draws(device: torch.device) -> list[torch.Tensor]:
    return [
        torch.randn(33, device=device),
        torch.rand(7, 5, device=device, dtype=torch.float64),
        torch.randint(0, 1000, (50,), device=device),
        torch.randperm(40, device=device),
        torch.empty(20, device=device).normal_(2, 3),
        torch.empty(20, device=device).uniform_(-1, 1),
        torch.empty(20, device=device).exponential_(),
        torch.bernoulli(torch.full((30,), 0.5, device=device)),
        torch.nn.functional.dropout(torch.ones(50, device=device), 0.5),
        torch.multinomial(torch.ones(10, device=device), 4),
    ]


def values(tensors: list[torch.Tensor]) -> list[list]:
    return [t.cpu().tolist() for t in tensors]


@contract("M-11")
def test_values_depend_on_the_seed_and_the_order_of_calls_only(device):
    torch.manual_seed(7)
    expected = values(draws(device))
    torch.manual_seed(7)
    assert values(draws(device)) == expected
    torch.manual_seed(8)
    assert values(draws(device)) != expected
    for seed in range(10):
        torch.manual_seed(7)
        streams = [torch.Stream(device) for _ in range(3)]
        with schedule(seed, device):
            # Another stream for each call, whatever the schedule makes of them.
            found = []
            makers = (
                lambda: torch.randn(33, device=device),
                lambda: torch.rand(7, 5, device=device, dtype=torch.float64),
                lambda: torch.randint(0, 1000, (50,), device=device),
                lambda: torch.randperm(40, device=device),
            )
            for i, make in enumerate(makers):
                with streams[i % 3]:
                    found.append(make())
            torch.accelerator.synchronize()
            assert values(found) == expected[:4], f"under seed {seed}"


@contract("M-11")
def test_the_sequence_is_taken_at_the_call_not_when_the_work_runs(device, stream):
    torch.manual_seed(3)
    expected = [torch.randn(4, device=device).tolist() for _ in range(2)]
    torch.manual_seed(3)
    with Gate(stream), assert_no_host_wait():
        with stream:
            first = torch.randn(4, device=device)
        second = torch.randn(4, device=device)  # runs first
    with stream:
        assert [first.tolist(), second.tolist()] == expected


@contract("M-11")
def test_generators_are_independent(device):
    a, b = torch.Generator(device).manual_seed(5), torch.Generator(device).manual_seed(5)
    torch.manual_seed(1)
    default = torch.randn(4, device=device).tolist()
    torch.manual_seed(1)
    x = torch.randn(4, device=device, generator=a)
    assert torch.randn(4, device=device).tolist() == default, "another generator's calls do not advance the default one"
    assert torch.equal(x, torch.randn(4, device=device, generator=b))
    assert not torch.equal(x, torch.randn(4, device=device, generator=a))
    assert a.device == device and a.initial_seed() == 5
    with pytest.raises(RuntimeError):
        torch.randn(4, device=device, generator=torch.Generator())
    with pytest.raises(RuntimeError):
        torch.randn(4, generator=a)


@contract("M-11", "R-04")
def test_state_of_a_generator(device):
    g = torch.Generator(device).manual_seed(11)
    torch.randn(3, device=device, generator=g)
    state = g.get_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8
    expected = torch.randn(5, device=device, generator=g).tolist()
    torch.randn(5, device=device, generator=g)
    g.set_state(state)
    assert torch.randn(5, device=device, generator=g).tolist() == expected
    clone = torch.Generator(device)
    clone.set_state(state)
    assert torch.randn(5, device=device, generator=clone).tolist() == expected
    copied = g.clone_state() if hasattr(g, "clone_state") else None
    if copied is not None:
        assert torch.equal(copied.get_state(), g.get_state())
    with pytest.raises((RuntimeError, TypeError)):
        g.set_state(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises((RuntimeError, TypeError)):
        g.set_state(torch.zeros(16))


@contract("R-04")
def test_functions_of_the_module(device):
    mojo = torch.mojo
    mojo.manual_seed(21)
    assert mojo.initial_seed() == 21 and mojo.default_generators[0].initial_seed() == 21
    first = torch.randn(4, device=device).tolist()
    mojo.manual_seed_all(21)
    assert torch.randn(4, device=device).tolist() == first
    with mojo.device(1):
        assert mojo.initial_seed() == 21
        mojo.manual_seed(22)
        assert mojo.initial_seed() == 22
    assert mojo.initial_seed() == 21 and mojo.default_generators[1].initial_seed() == 22
    state = mojo.get_rng_state()
    assert torch.equal(state, mojo.get_rng_state(0)) and torch.equal(state, mojo.get_rng_state("mojo:0"))
    after = torch.randn(4, device=device).tolist()
    mojo.set_rng_state(state)
    assert torch.randn(4, device=device).tolist() == after
    states = mojo.get_rng_state_all()
    assert len(states) == 2
    mojo.seed_all()
    assert mojo.default_generators[0].initial_seed() == mojo.default_generators[1].initial_seed() != 21
    mojo.seed()
    mojo.set_rng_state_all(states)
    assert torch.equal(mojo.get_rng_state(1), states[1])
    assert len(mojo.default_generators) == 2


@contract("R-04")
@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1, -1])
def test_torch_manual_seed_reaches_every_device(device, other, seed):
    torch.manual_seed(seed)
    first = [torch.randn(8, device=d).tolist() for d in (device, other)]
    torch.manual_seed(seed)
    assert [torch.randn(8, device=d).tolist() for d in (device, other)] == first


@contract("R-04")
@pytest.mark.filterwarnings("ignore:MOJO reports that you have 2 available devices")
def test_fork_rng(device, other):
    torch.manual_seed(4)
    expected = [torch.randn(4, device=d).tolist() for d in (device, other)] + [torch.randn(4).tolist()]
    for arguments in ({"device_type": "mojo"}, {"devices": [0, 1], "device_type": "mojo"}, {"devices": [0, 1]}):
        torch.manual_seed(4)
        with torch.random.fork_rng(**arguments):
            torch.manual_seed(99)
            for d in (device, other, torch.device("cpu")):
                torch.randn(9, device=d)
        assert [torch.randn(4, device=d).tolist() for d in (device, other)] + [torch.randn(4).tolist()] == expected


@contract("M-11")
def test_the_numbers_look_random(device):
    torch.manual_seed(0)
    x = torch.randn(1 << 16, device=device).cpu()
    assert abs(x.mean()) < 0.02 and abs(x.std() - 1) < 0.02
    y = torch.rand(1 << 16, device=device).cpu()
    assert y.min() >= 0 and y.max() < 1 and abs(y.mean() - 0.5) < 0.01
    # Consecutive calls, and generators with neighbouring seeds, share nothing.
    batches = [torch.rand(1000, device=device).cpu() for _ in range(20)]
    for seed in range(20):
        batches.append(torch.rand(1000, device=device, generator=torch.Generator(device).manual_seed(seed)).cpu())
    everything = torch.cat(batches)
    assert everything.unique().numel() > 0.99 * everything.numel()
    correlation = torch.corrcoef(torch.stack(batches)) - torch.eye(len(batches))
    assert correlation.abs().max() < 0.2


@contract("M-11", "R-04")
def test_seeding_opens_no_device():
    run_python(
        """
        from torch_mojo_backend import _C
        torch.manual_seed(5)
        torch.mojo.get_rng_state_all(); torch.mojo.seed_all(); torch.mojo.default_generators[0].get_state()
        torch.manual_seed(5)
        assert not _C.is_open(0)
        a = torch.randn(3, device="mojo").tolist()
        torch.manual_seed(5)
        assert torch.randn(3, device="mojo").tolist() == a
        """
    )


@contract("M-11")
def test_two_processes_with_one_seed_agree():
    code = "torch.manual_seed(17); print(torch.randn(6, device='mojo').tolist())"
    found = {
        run_python(code, HOST_SCHEDULE=text, HOST_WORKERS=workers).stdout
        for text, workers in (("fifo", "1"), ("fifo", "4"), ("random:5", "2"))
    }
    assert len(found) == 1
