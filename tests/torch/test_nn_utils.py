"""torch.nn.utils on the device: clipping of gradients, parametrizations, vectors of parameters, pruning."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch_mojo_backend.testing import Gate, assert_no_host_wait


def parameters_of(place: Any) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    made = [nn.Parameter(torch.zeros(shape, device=place)) for shape in ((3, 4), (5,), ())]
    for p in made:
        p.grad = torch.randn(p.shape, generator=generator).to(place) * 3
    return made


@pytest.mark.parametrize("foreach", [None, True, False])
@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf"), 3.0])
def test_clipping_by_norm(device, norm_type, foreach):
    def call(place: Any) -> list[torch.Tensor]:
        made = parameters_of(place)
        total = nn.utils.clip_grad_norm_(made, 1.5, norm_type, foreach=foreach)
        return [total, *(p.grad for p in made)]

    torch.accelerator.synchronize()
    expected = call("cpu")
    made = parameters_of(device)
    with Gate(), assert_no_host_wait():
        total = nn.utils.clip_grad_norm_(made, 1.5, norm_type, foreach=foreach)
    assert total.device == device
    for actual, value in zip([total, *(p.grad for p in made)], expected, strict=True):
        torch.testing.assert_close(actual.cpu(), value)


def test_clipping_by_norm_says_what_is_not_finite(device):
    made = parameters_of(device)
    made[1].grad[2] = float("nan")
    with pytest.raises(RuntimeError, match="The total norm of order 2.0 for gradients .* is non-finite"):
        nn.utils.clip_grad_norm_(made, 1.0, error_if_nonfinite=True)


def test_clipping_parameters_of_several_devices(device, other):
    expected = nn.utils.clip_grad_norm_(parameters_of("cpu") + parameters_of("cpu"), 1.0)
    made = parameters_of(device) + parameters_of(other)
    total = nn.utils.clip_grad_norm_(made, 1.0)
    torch.testing.assert_close(total.cpu(), expected)
    assert {p.grad.device for p in made} == {device, other}


@pytest.mark.parametrize("foreach", [None, True, False])
def test_clipping_by_value(device, foreach):
    expected, made = parameters_of("cpu"), parameters_of(device)
    nn.utils.clip_grad_value_(expected, 0.5, foreach=foreach)
    torch.accelerator.synchronize()
    with Gate(), assert_no_host_wait():
        nn.utils.clip_grad_value_(made, 0.5, foreach=foreach)
    for a, e in zip(made, expected, strict=True):
        assert torch.equal(a.grad.cpu(), e.grad)


def test_the_total_norm_and_clipping_with_it(device):
    made, expected = parameters_of(device), parameters_of("cpu")
    totals = []
    for group in (made, expected):
        total = nn.utils.get_total_norm([p.grad for p in group])
        nn.utils.clip_grads_with_norm_(group, 1.0, total)
        totals.append(total.cpu())
    torch.testing.assert_close(*totals)
    for a, e in zip(made, expected, strict=True):
        torch.testing.assert_close(a.grad.cpu(), e.grad)


class Symmetric(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.triu() + x.triu(1).mT

    def right_inverse(self, x: torch.Tensor) -> torch.Tensor:
        return x.triu()


PARAMETRIZATIONS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "weight norm": lambda m: parametrizations.weight_norm(m, dim=0),
    "weight norm over all": lambda m: parametrizations.weight_norm(m, dim=None),
    "spectral norm": lambda m: parametrizations.spectral_norm(m),
    "orthogonal by matrix_exp": lambda m: parametrizations.orthogonal(m, orthogonal_map="matrix_exp"),
    "orthogonal by cayley": lambda m: parametrizations.orthogonal(m, orthogonal_map="cayley"),
    "orthogonal by householder": lambda m: parametrizations.orthogonal(m, orthogonal_map="householder"),
    "symmetric": lambda m: (parametrize.register_parametrization(m, "weight", Symmetric()), m)[1],
}


@pytest.mark.parametrize("name", PARAMETRIZATIONS)
def test_parametrizations_train_as_on_the_cpu(device, name):
    def call(place: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layer = PARAMETRIZATIONS[name](nn.Linear(4, 4)).to(place)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        x = torch.linspace(-1, 1, 12).view(3, 4).to(place)
        for _ in range(3):
            optimizer.zero_grad()
            layer(x).square().sum().backward()
            optimizer.step()
        state = list(layer.state_dict().values())
        parametrize.remove_parametrizations(layer, "weight")
        return [layer.weight, *state]

    for actual, expected in zip(call(device), call("cpu"), strict=True):
        assert actual.device == device
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_parametrizations_made_on_the_device(device):
    for make in PARAMETRIZATIONS.values():
        layer = make(nn.Linear(4, 4, device=device))
        with parametrize.cached():
            out = layer(torch.ones(2, 4, device=device))
        out.sum().backward()
        assert all(p.grad is not None and p.grad.device == device for p in layer.parameters() if p.requires_grad)


def test_vectors_of_parameters(device):
    module = nn.Linear(3, 2).to(device)
    vector = nn.utils.parameters_to_vector(module.parameters())
    assert vector.device == device and vector.numel() == 8
    nn.utils.vector_to_parameters(torch.arange(8.0, device=device), module.parameters())
    assert module.weight.tolist() == [[0, 1, 2], [3, 4, 5]] and module.bias.tolist() == [6, 7]


def test_pruning(device):
    def call(place: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layer = nn.Linear(4, 3).to(place)
        prune.l1_unstructured(layer, "weight", amount=5)
        prune.ln_structured(layer, "weight", amount=1, n=2, dim=0)
        layer(torch.ones(1, 4, device=place)).sum().backward()
        mask, gradient = layer.weight_mask.clone(), layer.weight_orig.grad.clone()
        prune.remove(layer, "weight")
        return [layer.weight, mask, gradient]

    for actual, expected in zip(call(device), call("cpu"), strict=True):
        assert torch.equal(actual.cpu(), expected)


def test_packed_sequences(device):
    def call(place: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        network = nn.LSTM(3, 4, bidirectional=True).to(place)
        x = torch.randn(5, 3, 3, generator=torch.Generator().manual_seed(1)).to(place)
        packed = nn.utils.rnn.pack_padded_sequence(x, [2, 5, 3], enforce_sorted=False)
        out, (h, c) = network(packed)
        padded, lengths = nn.utils.rnn.pad_packed_sequence(out)
        (padded.sum() + h.sum()).backward()
        return [padded, lengths, h, c, *(p.grad for p in network.parameters())]

    for actual, expected in zip(call(device), call("cpu"), strict=True):
        torch.testing.assert_close(actual.cpu(), expected)


def test_fused_layers_for_evaluation(device):
    torch.manual_seed(0)
    convolution, norm = nn.Conv2d(2, 3, 3).to(device).eval(), nn.BatchNorm2d(3).to(device).eval()
    norm.running_mean.uniform_()
    norm.running_var.uniform_(0.5, 1)
    x = torch.randn(1, 2, 5, 5, device=device)
    fused = nn.utils.fuse_conv_bn_eval(convolution, norm)
    torch.testing.assert_close(fused(x), norm(convolution(x)), rtol=1e-4, atol=1e-5)
