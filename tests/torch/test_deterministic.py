"""torch.use_deterministic_algorithms: what is refused and what is filled is what CPU refuses and fills."""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch_mojo_backend.testing import Gate, assert_no_host_wait, schedule


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = True


def unpool(x: torch.Tensor) -> torch.Tensor:
    return F.max_unpool1d(x[None, None], torch.arange(x.numel(), device=x.device)[None, None] * 2, 2)


REFUSED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "put_": lambda x: x.clone().put_(torch.arange(x.numel(), device=x.device), x),
    "max_unpool": unpool,
}


@pytest.mark.parametrize("size", [6, 100_000])
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_deterministic_raises_at_the_call(device, name, size):
    x = torch.zeros(size)
    there = x.to(device)
    REFUSED[name](there)  # what is remembered of the call is not what holds in the other mode
    torch.accelerator.synchronize()  # the mode is the process's: work that is still queued would find it changed
    torch.use_deterministic_algorithms(True)
    texts = []
    with Gate():
        for values in (x, there):
            with pytest.raises(RuntimeError, match="does not have a deterministic implementation") as caught:
                REFUSED[name](values)
            texts.append(str(caught.value))
    assert texts[0] == texts[1]
    torch.accelerator.synchronize()
    torch.use_deterministic_algorithms(False)
    assert torch.equal(REFUSED[name](there).cpu(), REFUSED[name](x))


@pytest.mark.parametrize("name", REFUSED)
def test_or_warns(device, name):
    torch.use_deterministic_algorithms(True, warn_only=True)
    x = torch.arange(7.0)
    there = x.to(device)
    with pytest.warns(UserWarning, match="does not have a deterministic implementation"):
        actual = REFUSED[name](there)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(actual.cpu(), REFUSED[name](x))


def places(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([0, 1, 1, 2, 0, 3], device=x.device)


SERVED: dict[str, Callable[[torch.Tensor], Any]] = {
    "put_ with accumulate": lambda x: x.clone().put_(places(x), x, accumulate=True),
    "index_put with accumulate": lambda x: x.index_put((places(x),), x, accumulate=True),
    "index_put": lambda x: x.index_put((places(x),), x),
    "index_add": lambda x: x.index_add(0, places(x), x),
    "index_copy": lambda x: x.index_copy(0, places(x), x),
    "scatter_add": lambda x: x.scatter_add(0, places(x), x),
    "scatter_reduce": lambda x: x.scatter_reduce(0, places(x), x, "mean"),
    "cumsum": lambda x: x.cumsum(0),
    "bincount": lambda x: places(x).bincount(x),
    "histc": lambda x: x.histc(3),
    "median": lambda x: x.median(0),
    "kthvalue": lambda x: x.kthvalue(2),
    "repeat_interleave": lambda x: x.repeat_interleave(places(x)),
    "interpolate": lambda x: backward(lambda y: F.interpolate(y[None, None], scale_factor=2, mode="linear"), x),
    "pad": lambda x: backward(lambda y: F.pad(y[None, None], (2, 1), mode="reflect"), x),
    "embedding": lambda x: backward(lambda y: F.embedding(places(x), y.view(6, 1)), x),
    "ctc": lambda x: backward(
        lambda y: F.ctc_loss(y.expand(4, 1, 6).log_softmax(2), places(x)[None, 1:3], [4], [2], blank=5), x
    ),
}


def backward(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    function(x).square().sum().backward()
    return x.grad


@pytest.mark.parametrize("name", SERVED)
def test_what_is_deterministic_on_cpu_is_served(device, name):
    torch.use_deterministic_algorithms(True)
    x = torch.arange(6.0)
    expected, actual = (torch.utils._pytree.tree_leaves(SERVED[name](place)) for place in (x, x.to(device)))
    for a, e in zip(actual, expected, strict=True):
        assert torch.equal(a.cpu(), e)


MAKERS: list[Callable[[Any, torch.dtype], torch.Tensor]] = [
    lambda d, t: torch.empty(4, device=d, dtype=t),
    lambda d, t: torch.empty_strided((2, 3), (1, 4), device=d, dtype=t),
    lambda d, t: torch.empty(2, 2, 2, 2, device=d, dtype=t, memory_format=torch.channels_last),
    lambda d, t: torch.empty_like(torch.zeros(3, device=d, dtype=t)),
    lambda d, t: torch.zeros(1, device=d, dtype=t).new_empty(3),
    lambda d, t: torch.empty_permuted((2, 3), (1, 0), device=d, dtype=t),
    lambda d, t: torch.zeros(2, device=d, dtype=t).resize_(6),
    lambda d, t: torch.empty(0, device=d, dtype=t).resize_(2, 2),
]


@pytest.mark.parametrize("which", range(len(MAKERS)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16, torch.bool, torch.complex64])
def test_memory_that_nobody_has_written_is_filled(device, which, dtype):
    torch.use_deterministic_algorithms(True)
    expected = MAKERS[which]("cpu", dtype)
    with Gate(), assert_no_host_wait():
        actual = MAKERS[which](device, dtype)
    assert actual.stride() == expected.stride()
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0, equal_nan=True)


def test_or_not(device):
    torch.full((1000,), 3.0, device=device)  # memory for the next
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.mojo.reset_op_counts()
    torch.empty(1000, device=device)
    assert torch.mojo.op_counts() == {}


def test_training_twice_gives_the_same_bits(device):
    def run(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Dropout(0.3),
            torch.nn.Flatten(), torch.nn.Linear(144, 3),
        ).to(device)  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters())
        x, target = torch.randn(8, 1, 8, 8, device=device), torch.arange(8, device=device) % 3
        with schedule(seed):
            for _ in range(3):
                optimizer.zero_grad()
                F.cross_entropy(model(x), target).backward()
                optimizer.step()
            return [p.detach().cpu() for p in model.parameters()]

    torch.use_deterministic_algorithms(True)
    first, second = run(1), run(2)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b) and not math.isnan(a.sum())
