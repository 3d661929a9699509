"""Autograd and streams: row M-05."""

from typing import ClassVar

import pytest
import torch
from contract import contract
from torch_mojo_backend.testing import schedule

SIZE = 1 << 14


def busy(milliseconds: float) -> None:
    torch.mojo._sleep(int(milliseconds * 1.5e6))


class Lagging(torch.autograd.Function):
    """Times three backwards, slow on the device both ways, and notes the stream that its backward runs on."""

    seen: ClassVar[list[torch.Stream]] = []

    @staticmethod
    def forward(ctx, x):
        busy(5)
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        Lagging.seen.append(torch.accelerator.current_stream())
        busy(20)
        return gradient * 3


@pytest.fixture(autouse=True)
def fresh():
    Lagging.seen.clear()


@contract("M-05")
def test_backward_runs_on_the_stream_of_the_forward_op(device, stream):
    x = torch.ones(SIZE, device=device, requires_grad=True)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        y = Lagging.apply(x)
    second = torch.Stream(device)
    second.wait_stream(stream)
    with second:
        z = Lagging.apply(y)
    torch.accelerator.current_stream().wait_stream(second)
    z.sum().backward()
    assert Lagging.seen == [second, stream]
    assert bool((x.grad == 9).all()), "the leaf's stream is joined with the caller's"


@contract("M-05")
def test_leaf_streams_are_joined_with_the_callers(device, stream):
    leaf = torch.Stream(device)
    with leaf:
        x = torch.ones(SIZE, device=device, requires_grad=True)
        y = Lagging.apply(x)
    stream.wait_stream(leaf)
    with stream:
        y.sum().backward()
        assert bool((x.grad == 3).all())
    assert Lagging.seen == [leaf]


@contract("M-05")
def test_backward_inside_a_side_stream_with_a_gradient_made_there(device, stream):
    x = torch.ones(SIZE, device=device, requires_grad=True)
    y = Lagging.apply(x)
    gradient = torch.zeros_like(y)
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        busy(30)
        gradient.fill_(2)
        y.backward(gradient)
        assert bool((x.grad == 6).all())
    assert Lagging.seen == [torch.mojo.default_stream()]


@contract("M-05")
def test_two_branches_on_two_streams_add_up(device):
    a, b = torch.Stream(device), torch.Stream(device)
    here = torch.accelerator.current_stream()
    x = torch.ones(SIZE, device=device, requires_grad=True)
    root = x * 2
    branches = []
    for s in (a, b):
        s.wait_stream(here)
        with s:
            branches.append(Lagging.apply(root))
    for s in (a, b):
        here.wait_stream(s)
    (branches[0] + branches[1]).sum().backward()
    assert set(Lagging.seen) == {a, b}
    assert bool((x.grad == 12).all())


@contract("M-05")
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match")
def test_accumulation_into_one_leaf_from_two_streams(device):
    a, b = torch.Stream(device), torch.Stream(device)
    here = torch.accelerator.current_stream()
    x = torch.ones(SIZE, device=device, requires_grad=True)
    losses = []
    for s in (a, b):
        s.wait_stream(here)
        with s:
            losses.append(Lagging.apply(x).sum())
    for s, loss in zip((a, b), losses, strict=True):
        with s:
            loss.backward()
        here.wait_stream(s)
    assert bool((x.grad == 6).all())


@contract("M-05")
def test_optimizer_step_on_a_side_stream(device, stream):
    w = torch.nn.Parameter(torch.ones(SIZE, device=device))
    optimizer = torch.optim.SGD([w], lr=1.0)
    here = torch.accelerator.current_stream()
    for _ in range(3):
        here.wait_stream(stream)
        Lagging.apply(w).sum().backward()
        stream.wait_stream(here)
        with stream:
            busy(10)
            optimizer.step()
        w.grad.record_stream(stream)
        optimizer.zero_grad(set_to_none=True)
    here.wait_stream(stream)
    assert bool((w == -8).all())


@contract("M-05")
def test_gradients_through_two_devices(device, other):
    x = torch.ones(SIZE, device=device, requires_grad=True)
    near, far = torch.Stream(device), torch.Stream(other)
    near.wait_stream(torch.accelerator.current_stream())
    with near:
        y = Lagging.apply(x)
        far.wait_stream(near)
        with far:
            z = Lagging.apply(y.to(other))
    torch.accelerator.current_stream(0).wait_stream(near)
    torch.accelerator.current_stream(1).wait_stream(far)
    z.sum().backward()
    torch.accelerator.synchronize(1)
    assert x.grad.device == device and bool((x.grad == 9).all())
    assert Lagging.seen == [far, near]


@contract("M-05")
def test_an_error_in_a_backward_goes_to_the_caller(device, stream):
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            raise KeyError("from backward")

    x = torch.ones(4, device=device, requires_grad=True)
    with stream:
        y = Failing.apply(x)
        with pytest.raises(KeyError, match="from backward"):
            y.sum().backward()
    assert torch.accelerator.current_stream() == torch.mojo.default_stream()


@contract("M-05")
def test_the_host_is_not_made_to_wait_by_backward(device, stream):
    """The caller's stream waits, the host does not: backward returns while the work is held back."""
    from torch_mojo_backend.testing import Gate, assert_no_host_wait

    model = torch.nn.Linear(16, 16, device=device)
    x = torch.ones(4, 16, device=device)
    torch.accelerator.synchronize()
    with Gate(), assert_no_host_wait():
        model(x).square().mean().backward()
        assert not torch.accelerator.current_stream().query()
    assert model.weight.grad.abs().sum().item() > 0


@contract("M-05", "M-10")
@pytest.mark.parametrize("seed", range(5))
def test_a_model_trains_across_streams_under_any_schedule(device, stream, seed):
    def train(where: torch.device, side: torch.Stream | None) -> list[float]:
        torch.manual_seed(0)
        first, second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
        x, y = torch.randn(32, 8), torch.randn(32, 4)
        first, second, x, y = first.to(where), second.to(where), x.to(where), y.to(where)
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.05, momentum=0.9)
        losses = []
        for _ in range(4):
            h = torch.relu(first(x))
            if side is None:
                loss = (second(h) - y).square().mean()
            else:
                here = torch.accelerator.current_stream()
                side.wait_stream(here)
                with side:
                    loss = (second(h) - y).square().mean()
                h.record_stream(side)
                here.wait_stream(side)
                loss.record_stream(here)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [value.item() for value in losses]

    expected = train(torch.device("cpu"), None)
    with schedule(seed, device):
        found = train(device, stream)
    assert found == pytest.approx(expected, rel=1e-4)
