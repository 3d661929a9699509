"""Random numbers: rows M-11 and R-04's functions for them."""

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
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


# Every kind of call that draws, each with the generator that it is given.
DRAWS: dict[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "randn": lambda x, g: torch.randn(5, device=x.device, generator=g),
    "rand": lambda x, g: torch.rand(5, device=x.device, generator=g, dtype=torch.float64),
    "randint": lambda x, g: torch.randint(100, (5,), device=x.device, generator=g),
    "randperm": lambda x, g: torch.randperm(9, device=x.device, generator=g),
    "normal": lambda x, g: torch.normal(x, 1.0, generator=g),
    "normal_": lambda x, g: x.clone().normal_(generator=g),
    "uniform_": lambda x, g: x.clone().uniform_(generator=g),
    "random_": lambda x, g: x.clone().random_(1000, generator=g),
    "exponential_": lambda x, g: x.clone().exponential_(generator=g),
    "cauchy_": lambda x, g: x.clone().cauchy_(generator=g),
    "log_normal_": lambda x, g: x.clone().log_normal_(generator=g),
    "geometric_": lambda x, g: x.clone().geometric_(0.3, generator=g),
    "bernoulli": lambda x, g: torch.bernoulli(x, generator=g),
    "bernoulli_": lambda x, g: x.clone().bernoulli_(0.5, generator=g),
    "multinomial": lambda x, g: torch.multinomial(x, 3, generator=g),
    "poisson": lambda x, g: torch.poisson(x * 10, generator=g),
    "binomial": lambda x, g: torch.binomial(x * 0 + 20, x, generator=g),
    "gamma": lambda x, g: torch._standard_gamma(x, generator=g),
    "xavier": lambda x, g: torch.nn.init.xavier_normal_(x.view(2, 5).clone(), generator=g),
}
# Those that draw from the default generator of the device alone.
LAYERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: F.dropout(x),
    "dropout2d": lambda x: F.dropout2d(x.view(1, 5, 2, 1).expand(3, 5, 2, 4)),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.5, training=True),
    "rrelu": lambda x: F.rrelu(x - 0.5, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x),
    "attention": lambda x: F.scaled_dot_product_attention(*[x.view(1, 5, 2)] * 3, dropout_p=0.5),
    "fractional_max_pool": lambda x: F.fractional_max_pool2d(x.expand(1, 10, 10), 2, output_size=4),
    "rand_like": lambda x: torch.rand_like(x),
    "distribution": lambda x: torch.distributions.Normal(x, 1.0).sample(),
}


def chances(device: torch.device) -> torch.Tensor:
    return torch.linspace(0.1, 0.9, 10).to(device)


@contract("M-11")
def test_every_draw_is_the_same_on_any_stream_under_any_schedule(device):
    x = chances(device)
    calls = [lambda f=f: f(x, None) for f in DRAWS.values()] + [lambda f=f: f(x) for f in LAYERS.values()]
    torch.manual_seed(7)
    expected = values([call() for call in calls])
    streams = [torch.Stream(device) for _ in range(3)]
    torch.accelerator.synchronize()
    for seed in range(8):
        torch.manual_seed(7)
        found = []
        with schedule(seed, device):
            for i, call in enumerate(calls):
                with streams[(i + seed) % 3]:
                    found.append(call())
            torch.accelerator.synchronize()
        assert values(found) == expected, f"under seed {seed}"


@contract("M-11")
@pytest.mark.parametrize("name", DRAWS)
def test_a_generator_of_its_own(device, name):
    x = chances(device)
    generator = torch.Generator(device)
    default = torch.mojo.get_rng_state()
    found = []
    for seed in (3, 3, 4):
        generator.manual_seed(seed)
        found.append([DRAWS[name](x, generator).tolist() for _ in range(4)])
    assert found[0] == found[1] != found[2]
    assert len({str(row) for row in found[0]}) > 1, "each call draws anew"
    assert torch.equal(torch.mojo.get_rng_state(), default)


@contract("M-11")
@pytest.mark.parametrize("name", DRAWS)
def test_a_generator_of_another_device_is_refused(device, other, name):
    cpu, ours, theirs = torch.Generator(), torch.Generator(device), torch.Generator(other)
    state = [g.get_state() for g in (cpu, ours, theirs)]
    x, on_cpu = chances(device), chances(torch.device("cpu"))
    torch.accelerator.synchronize()
    with Gate():
        with pytest.raises(RuntimeError, match="^Expected a 'mojo' device type for generator but found 'cpu'"):
            DRAWS[name](x, cpu)
        with pytest.raises(RuntimeError, match="^Expected a 'cpu' device type for generator but found 'mojo'"):
            DRAWS[name](on_cpu, ours)
        with pytest.raises(RuntimeError, match="^Expected a 'mojo:0' generator device but found 'mojo:1'"):
            DRAWS[name](x, theirs)
    for generator, before in zip((cpu, ours, theirs), state, strict=True):
        assert torch.equal(generator.get_state(), before), "and nothing is taken from it"


@contract("M-11")
def test_the_devices_have_generators_of_their_own(device, other):
    torch.manual_seed(1)
    expected = torch.randn(4, device=other).tolist()
    torch.manual_seed(1)
    assert torch.randn(4, device=device).tolist() == expected, "one seed gives each device the same"
    F.dropout(torch.ones(9, device=device))
    torch.mojo.manual_seed(99)
    assert torch.randn(4, device=other).tolist() == expected, "what one draws is nothing to the other"


@contract("M-11", "R-04")
def test_states_are_read_and_set_without_a_wait(device, other, stream):
    torch.manual_seed(5)
    with Gate(), Gate(stream), assert_no_host_wait():
        first = torch.randn(4, device=device)
        state, states = torch.mojo.get_rng_state(), torch.mojo.get_rng_state_all()
        with stream:
            second = torch.randn(4, device=device)
        torch.mojo.set_rng_state(state)
        again = torch.randn(4, device=device)
        torch.mojo.set_rng_state_all(states)
        with torch.random.fork_rng(device_type="mojo", devices=[0, 1]):
            torch.manual_seed(77)
            torch.randn(4, device=device)
        once_more = torch.randn(4, device=device)
    stream.synchronize()
    assert second.tolist() == again.tolist() == once_more.tolist() != first.tolist()
    assert torch.equal(states[0], state) and len(states) == 2


@contract("M-11", "R-04")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore:MOJO reports that you have 2 available devices")
def test_fork_rng_under_an_adversarial_schedule(device, stream, seed):
    x = chances(device)

    def run(forked: bool) -> list[list]:
        torch.manual_seed(4)
        found = [F.dropout(x)]
        if forked:
            with torch.random.fork_rng(device_type="mojo"), stream:
                torch.manual_seed(seed)
                F.dropout(x)
        found.append(torch.rand_like(x))
        return values(found)

    expected = run(False)
    torch.accelerator.synchronize()
    with schedule(seed, device):
        assert run(True) == expected
    with torch.random.fork_rng(device_type="mojo", enabled=False):
        torch.manual_seed(6)
    assert torch.mojo.initial_seed() == 6


@contract("M-11")
def test_threads_with_generators_of_their_own(device):
    """What one thread draws does not depend on the others, with one generator each."""

    def draw(seed: int) -> list[list]:
        generator = torch.Generator(device).manual_seed(seed)
        with torch.Stream(device):
            return [torch.randn(5, device=device, generator=generator).tolist() for _ in range(20)]

    expected = [draw(seed) for seed in range(4)]
    found: dict[int, list[list]] = {}
    threads = [threading.Thread(target=lambda seed=seed: found.update({seed: draw(seed)})) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(4)] == expected


@contract("M-11")
def test_a_shared_generator_gives_each_call_numbers_of_its_own(device):
    generator = torch.Generator(device).manual_seed(0)
    expected = {tuple(torch.rand(3, device=device, generator=generator).tolist()) for _ in range(200)}
    generator.manual_seed(0)
    found: list[torch.Tensor] = []
    threads = [
        threading.Thread(
            target=lambda: found.extend(torch.rand(3, device=device, generator=generator) for _ in range(50))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {tuple(x.tolist()) for x in found} == expected, "the same numbers, whichever thread got them"


@contract("M-11")
@pytest.mark.parametrize("seed", range(3))
def test_a_training_step_with_dropout_under_any_schedule(device, seed):
    def run() -> list[list]:
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 2)).to(device)
        x = torch.randn(4, 8, device=device)
        side = torch.Stream(device)
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            model(x).sum().backward()
        torch.accelerator.current_stream().wait_stream(side)
        return values([p.grad for p in model.parameters()])

    expected = run()
    with schedule(seed, device):
        assert run() == expected


def test_generators_are_pickled_and_copied(device):
    import pickle

    generator = torch.Generator(device).manual_seed(8)
    torch.randn(2, device=device, generator=generator)
    copy = pickle.loads(pickle.dumps(generator))
    assert copy.device == device and torch.equal(copy.get_state(), generator.get_state())
    expected = torch.randn(2, device=device, generator=generator)
    assert torch.equal(torch.randn(2, device=device, generator=copy), expected)
    state = generator.graphsafe_get_state()
    generator.graphsafe_set_state(state)
    assert generator.initial_seed() == 8
