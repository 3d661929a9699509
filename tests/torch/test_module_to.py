"""`module.to(device)` and `tensor.data = ...`: parameters stay the objects that they are, as with CUDA."""

import copy

import pytest
import torch
from torch import nn


def tied() -> nn.ModuleList:
    module = nn.ModuleList([nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)])
    module[1].weight = module[0].weight
    return module


def test_parameters_keep_their_identity(device):
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    parameters, values = list(module.parameters()), [p.detach().clone() for p in module.parameters()]
    assert module.to(device) is module
    for before, now, value in zip(parameters, module.parameters(), values, strict=True):
        assert before is now and now.device == device and torch.equal(now.cpu(), value)
    assert all(buffer.device == device for buffer in module.buffers())
    module.cpu()
    for before, now, value in zip(parameters, module.parameters(), values, strict=True):
        assert before is now and now.device.type == "cpu" and torch.equal(now, value)


def test_tied_weights_stay_tied(device):
    torch.manual_seed(0)
    module = tied()
    there = copy.deepcopy(module).to(device)
    assert there[0].weight is there[1].weight
    for m, tokens in ((module, torch.tensor([1, 2])), (there, torch.tensor([1, 2], device=device))):
        m[1](m[0](tokens)).square().sum().backward()
    torch.testing.assert_close(there[0].weight.grad.cpu(), module[0].weight.grad)
    weight, gradient = there[0].weight, there[0].weight.grad.cpu()
    there.cpu()
    assert there[0].weight is there[1].weight is weight
    assert weight.device.type == weight.grad.device.type == "cpu" and torch.equal(weight.grad, gradient)


def test_an_optimizer_made_before_the_move_trains_the_moved_parameters(device):
    module = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    module.to(device)
    before = module.weight.detach().cpu()
    module(torch.ones(1, 2, device=device)).sum().backward()
    optimizer.step()
    assert torch.equal(module.weight.detach().cpu(), before - 1)


def test_gradients_move_too(device, other):
    module = nn.Linear(2, 1)
    module(torch.ones(1, 2)).sum().backward()
    gradient = module.weight.grad
    for place in (device, other, torch.device("cpu")):
        module.to(place)
        assert module.weight.grad is gradient and gradient.device == place and gradient.tolist() == [[1, 1]]


def test_hooks_survive_the_move(device):
    module, seen = nn.Linear(2, 1), []
    module.weight.register_hook(lambda gradient: seen.append(gradient.device))
    module.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.device))
    module.to(device)(torch.ones(1, 2, device=device)).sum().backward()
    assert seen == [device, device]


def test_data_of_another_device(device):
    x = torch.ones(2, requires_grad=True)
    alias = x
    (x * 2).sum().backward()
    x.data = torch.zeros(3, device=device)
    assert alias is x and x.device == device and x.requires_grad and x.is_leaf and (x + 1).tolist() == [1, 1, 1]
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.device == device and x.grad.tolist() == [3, 3, 3]
    x.data = torch.ones(1)
    assert x.device.type == "cpu" and x.tolist() == [1]


def test_data_of_another_layout_is_refused_as_on_cpu(device):
    x = torch.ones(2, device=device)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.data = torch.ones(2).to_sparse()
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        torch.ones(2).to_sparse().data = x


def test_meta_modules_are_materialised(device):
    with torch.device("meta"):
        module = tied()
    module.to_empty(device=device)
    assert module[0].weight is not None and module[0].weight.device == device
    module.load_state_dict({key: torch.ones(5, 3) for key in module.state_dict()})
    assert module[1](module[0](torch.tensor([1], device=device))).tolist() == [[3.0] * 5]
