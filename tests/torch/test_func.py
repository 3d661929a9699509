"""torch.func on the device: each transform gives what it gives on the CPU, and waits for nothing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import func, nn
from torch_mojo_backend.testing import Gate, assert_no_host_wait, schedule


def data(place: torch.device | str, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(place)


def model_of(place: torch.device | str) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).to(place)


def loss_of(place: torch.device | str) -> tuple[Callable, dict[str, torch.Tensor]]:
    model = model_of(place)
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(func.functional_call(model, parameters, (x,)), target)

    return loss, parameters


def per_sample_gradients(place: Any) -> Any:
    loss, parameters = loss_of(place)
    one = lambda p, x, t: loss(p, x[None], t[None])  # noqa: E731
    target = torch.tensor([0, 2, 1, 1, 0], device=place)
    return func.vmap(func.grad(one), (None, 0, 0))(parameters, data(place, 5, 4), target)


def ensemble(place: Any) -> Any:
    models = [model_of(place) for _ in range(3)]
    for i, model in enumerate(models):
        for p in model.parameters():
            p.data += i
    parameters, buffers = func.stack_module_state(models)
    base = models[0]
    call = lambda p, b, x: func.functional_call(base, (p, b), (x,))  # noqa: E731
    return func.vmap(call, (0, 0, None))(parameters, buffers, data(place, 5, 4))


def attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x, is_causal=True)


def shared(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * x).sum()


CALLS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda d: func.grad(shared)(data(d, 5)),
    "grad and value": lambda d: func.grad_and_value(shared)(data(d, 5)),
    "grad of grad": lambda d: func.grad(lambda x: func.grad(shared)(x).square().sum())(data(d, 5)),
    "grad with aux": lambda d: func.grad(lambda x: (x.exp().sum(), x * 2), has_aux=True)(data(d, 5)),
    "vjp": lambda d: func.vjp(lambda x: x.tanh() @ x, data(d, 3, 3))[1](torch.ones(3, 3, device=d)),
    "jvp": lambda d: func.jvp(lambda x: x.tanh() @ x, (data(d, 3, 3),), (data(d, 3, 3, seed=1),)),
    "jvp of a network": lambda d: func.jvp(model_of(d), (data(d, 2, 4),), (data(d, 2, 4, seed=1),)),
    "jvp of a convolution": lambda d: func.jvp(
        lambda x, w: F.conv2d(x, w).relu(),
        (data(d, 1, 2, 5, 5), data(d, 3, 2, 3, 3)),
        (data(d, 1, 2, 5, 5, seed=1), data(d, 3, 2, 3, 3, seed=1)),
    ),
    "jvp of norms": lambda d: func.jvp(
        lambda x: F.layer_norm(x, (4,)).softmax(-1) + F.batch_norm(x, None, None, training=True),
        (data(d, 3, 4),),
        (data(d, 3, 4, seed=1),),
    ),
    "linearize": lambda d: func.linearize(lambda x: x.sin() * x, data(d, 3))[1](torch.ones(3, device=d)),
    "jacrev": lambda d: func.jacrev(lambda x: x.softmax(0) * x)(data(d, 4)),
    "jacfwd": lambda d: func.jacfwd(lambda x: x.softmax(0) * x)(data(d, 4)),
    "hessian": lambda d: func.hessian(lambda x: x.prod().tanh())(data(d, 4)),
    "jacobian of a network": lambda d: func.vmap(func.jacrev(model_of(d)))(data(d, 3, 4)),
    "hessian-vector product": lambda d: func.jvp(func.grad(shared), (data(d, 4),), (torch.ones(4, device=d),))[1],
    "vmap": lambda d: func.vmap(torch.dot)(data(d, 3, 4), data(d, 3, 4, seed=1)),
    "vmap over other dimensions": lambda d: func.vmap(lambda x, y: x @ y, (1, None), 1)(
        data(d, 4, 3, 4), data(d, 4, 2)
    ),
    "vmap of vmap": lambda d: func.vmap(func.vmap(lambda x: x.cumsum(0) / x.norm()))(data(d, 2, 3, 4)),
    "vmap of a convolution": lambda d: func.vmap(F.conv2d)(data(d, 3, 2, 2, 5, 5), data(d, 3, 3, 2, 3, 3)),
    "vmap of attention": lambda d: func.vmap(attention)(data(d, 3, 2, 2, 5, 4)),
    "vmap of linear algebra": lambda d: func.vmap(torch.linalg.inv)(data(d, 3, 2, 2)),
    "vmap of indexing": lambda d: func.vmap(lambda x, i: x[i])(data(d, 3, 5), torch.tensor([[0, 4]] * 3, device=d)),
    "vmap of embedding": lambda d: func.vmap(F.embedding, (0, None))(
        torch.tensor([[0, 1], [2, 0]], device=d), data(d, 3, 2)
    ),
    "vmap in place": lambda d: func.vmap(lambda x: x.clone().mul_(2).add_(x))(data(d, 3, 4)),
    "vmap without a batching rule": lambda d: func.vmap(lambda x: torch.histc(x, 4, -1, 1))(data(d, 3, 9)),
    "vmap in chunks": lambda d: func.vmap(lambda x: x.sort().values, chunk_size=2)(data(d, 5, 4)),
    "per-sample gradients": per_sample_gradients,
    "ensemble": ensemble,
    "functionalize": lambda d: func.functionalize(lambda x: x.clone().view(2, 2).add_(1).t().mul_(2))(data(d, 4)),
    "forward-mode of grad": lambda d: func.jacfwd(func.grad(shared))(data(d, 3)),
}


@pytest.mark.parametrize("name", CALLS)
def test_transforms_equal_the_cpus(device, name):
    expected, actual = CALLS[name]("cpu"), CALLS[name](device)
    expected, actual = map(torch.utils._pytree.tree_leaves, (expected, actual))
    for a, e in zip(actual, expected, strict=True):
        assert a.device == device
        torch.testing.assert_close(a.cpu(), e)


@pytest.mark.parametrize("name", ["per-sample gradients", "jacrev", "jvp of a network", "hessian", "ensemble"])
def test_transforms_are_queued_without_a_wait(device, name):
    x = data(device, 5, 4)
    model, target = model_of(device), torch.tensor([0, 2, 1, 1, 0], device=device)
    parameters = {key: p.detach() for key, p in model.named_parameters()}

    def one(p: Any, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(func.functional_call(model, p, (x[None],)), t[None])

    calls: dict[str, Callable] = {
        "per-sample gradients": lambda: func.vmap(func.grad(one), (None, 0, 0))(parameters, x, target),
        "jacrev": lambda: func.vmap(func.jacrev(model))(x),
        "jvp of a network": lambda: func.jvp(model, (x,), (x,)),
        "hessian": lambda: func.hessian(shared)(x[0]),
        "ensemble": lambda: func.vmap(lambda s: func.functional_call(model, parameters, (x * s,)))(x[0]),
    }
    calls[name]()
    torch.accelerator.synchronize()
    with Gate(), assert_no_host_wait():
        calls[name]()


def drawing(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        F.dropout(x),
        torch.rand_like(x),
        torch.randn(3, device=x.device),
        x + torch.randint(9, (3,), device=x.device),
    )


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_randomness_of_vmap(device, randomness):
    x = torch.ones(4, 3, device=device)
    torch.manual_seed(5)
    found = func.vmap(drawing, randomness=randomness)(x)
    torch.manual_seed(5)
    again = func.vmap(drawing, randomness=randomness)(x)
    for first, second in zip(found, again, strict=True):
        assert torch.equal(first, second)
    rows_of_normal = found[2].cpu().unique(dim=0)
    assert len(rows_of_normal) == (4 if randomness == "different" else 1)
    with pytest.raises(RuntimeError, match="randomness"):
        func.vmap(drawing)(x)


def test_forward_mode(device):
    def call(place: Any) -> list[torch.Tensor]:
        import torch.autograd.forward_ad as fwad

        with fwad.dual_level():
            x = fwad.make_dual(data(place, 4), data(place, 4, seed=1))
            y = fwad.unpack_dual((x.exp() * x).cumsum(0))
            return [y.primal, y.tangent]

    for actual, expected in zip(call(device), call("cpu"), strict=True):
        torch.testing.assert_close(actual.cpu(), expected)


def test_functional_call_leaves_the_module_alone(device):
    model = model_of(device)
    before = {name: p.clone() for name, p in model.named_parameters()}
    out = func.functional_call(model, {name: torch.zeros_like(p) for name, p in before.items()}, data(device, 2, 4))
    assert not out.any()
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        func.functional_call(model, {"0.weight": torch.zeros(6, 4)}, data(device, 2, 4))


@pytest.mark.parametrize("seed", range(3))
def test_transforms_under_an_adversarial_schedule(device, stream, seed):
    expected = torch.utils._pytree.tree_leaves(per_sample_gradients("cpu"))
    with schedule(seed), stream:
        actual = [a.cpu() for a in torch.utils._pytree.tree_leaves(per_sample_gradients(device))]
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e)
