"""What is drawn on the device has the distribution that the CPU draws from: two samples of each, compared by the
largest distance between their distribution functions (Kolmogorov and Smirnov)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F
from torch_mojo_backend.testing import schedule

COUNT = 20_000
# Two samples of this size from one distribution are further apart than this less than once in a million times.
BOUND = 2.7 * (2 / COUNT) ** 0.5

Draw = Callable[[torch.device], torch.Tensor]


def filled(name: str, *args: float) -> Draw:
    return lambda device: getattr(torch.empty(COUNT, device=device), name)(*args)


def ones(device: torch.device) -> torch.Tensor:
    return torch.ones(COUNT, device=device)


DRAWS: dict[str, Draw] = {
    "rand": lambda device: torch.rand(COUNT, device=device),
    "randn": lambda device: torch.randn(COUNT, device=device),
    "randint": lambda device: torch.randint(3, 17, (COUNT,), device=device),
    "randperm": lambda device: torch.randperm(COUNT, device=device)[: COUNT // 2].repeat(2),
    "uniform_": filled("uniform_", -2.0, 5.0),
    "normal_": filled("normal_", 1.0, 3.0),
    "random_": lambda device: torch.empty(COUNT, device=device, dtype=torch.int64).random_(100),
    "exponential_": filled("exponential_", 1.5),
    "cauchy_": filled("cauchy_", 1.0, 2.0),
    "log_normal_": filled("log_normal_", 0.5, 0.75),
    "geometric_": filled("geometric_", 0.3),
    "bernoulli": lambda device: torch.bernoulli(ones(device) * 0.3),
    "bernoulli_": filled("bernoulli_", 0.7),
    "poisson": lambda device: torch.poisson(ones(device) * 4),
    "binomial": lambda device: torch.binomial(ones(device) * 10, ones(device) * 0.4),
    "multinomial": lambda device: torch.multinomial(
        torch.tensor([1.0, 2, 3, 4], device=device), COUNT, replacement=True
    ),
    "standard_gamma": lambda device: torch._standard_gamma(ones(device) * 2.5),
    "dirichlet": lambda device: torch._sample_dirichlet(torch.ones(COUNT, 3, device=device) * 2)[:, 0],
    "normal of tensors": lambda device: torch.normal(ones(device) * 2, ones(device) * 0.5),
    "dropout": lambda device: F.dropout(torch.linspace(1, 2, COUNT, device=device), 0.4),
    "alpha_dropout": lambda device: F.alpha_dropout(torch.linspace(1, 2, COUNT, device=device), 0.4, training=True),
    "feature_dropout": lambda device: F.dropout1d(torch.ones(1, COUNT, 1, device=device), 0.25).flatten(),
    "rrelu": lambda device: F.rrelu(-ones(device), 0.1, 0.9, training=True),
    "bfloat16": lambda device: torch.rand(COUNT, device=device, dtype=torch.bfloat16).float(),
}


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest distance between the two empirical distribution functions."""
    a, b = a.double().sort().values, b.double().sort().values
    at = torch.cat([a, b]).unique()
    below = [torch.searchsorted(x, at, right=True).double() / len(x) for x in (a, b)]
    return float((below[0] - below[1]).abs().max())


@pytest.mark.parametrize("name", DRAWS)
def test_the_distribution_is_the_cpus(name: str, device: torch.device) -> None:
    draw = DRAWS[name]
    torch.manual_seed(20)
    expected = draw(torch.device("cpu"))
    with schedule(3):
        torch.manual_seed(21)
        drawn = draw(device)
        assert drawn.device.type == "mojo" and drawn.shape == expected.shape and drawn.dtype == expected.dtype
        drawn = drawn.cpu()
    found = distance(drawn, expected)
    assert found < BOUND, f"{name}: distance {found:.4f}, bound {BOUND:.4f}"
    torch.manual_seed(21)
    assert torch.equal(draw(device).cpu(), drawn), "another sequence for the same seed under another schedule"
    assert not torch.equal(draw(device).cpu(), drawn), "the same sequence again"


def test_the_measure_tells_distributions_apart() -> None:
    torch.manual_seed(3)
    assert distance(torch.rand(COUNT), torch.rand(COUNT) * 1.06) > BOUND
