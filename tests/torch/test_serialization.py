"""Saving, loading, pickling and copying device tensors."""

import copy
import io
import pickle

import pytest
import torch
from contract import contract
from helpers import run_python
from torch_mojo_backend.testing import Gate


def save_and_load(thing, **options):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, **options)


@contract("R-04")
@pytest.mark.parametrize(
    "where, expected",
    [
        (None, "mojo:0"),
        ("cpu", "cpu"),
        ("mojo", "mojo:0"),
        ("mojo:1", "mojo:1"),
        (torch.device("mojo", 1), "mojo:1"),
        ({"mojo:0": "mojo:1"}, "mojo:1"),
        (lambda storage, location: storage, "cpu"),
        (lambda storage, location: storage.mojo(1), "mojo:1"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_tensors_are_saved_and_loaded(device, where, expected, dtype):
    x = torch.arange(6).view(2, 3).to(dtype)
    found = save_and_load(x.to(device), map_location=where)
    assert str(found.device) == expected and found.dtype == dtype and torch.equal(found.cpu(), x)


@contract("R-04")
def test_the_device_of_a_cpu_tensor_is_mapped(device):
    assert save_and_load(torch.ones(3), map_location="mojo:1").device == torch.device("mojo", 1)
    assert save_and_load(torch.ones(3, device="mojo:1")).device == torch.device("mojo", 1)
    with torch.accelerator.device_index(1):
        assert save_and_load(torch.ones(3), map_location="mojo").device == torch.device("mojo", 1)


@contract("R-04")
def test_loading_to_a_device_that_is_not_there(device):
    with pytest.raises(RuntimeError, match="device_count"):
        save_and_load(torch.ones(3, device=device), map_location="mojo:7")


@contract("R-04")
def test_storages_stay_shared_and_views_keep_their_layout(device):
    base = torch.arange(12.0, device=device)
    a, b = base.view(3, 4).t(), base[3:7]
    for x in (pickle.loads(pickle.dumps(a)), save_and_load(a), copy.deepcopy(a)):
        assert x.device == device and x.stride() == a.stride() and torch.equal(x.cpu(), a.cpu())
    for x, y in (save_and_load([a, b]), copy.deepcopy((a, b))):
        y.fill_(-1)
        assert x.cpu().t().reshape(-1)[3:7].tolist() == [-1] * 4, "they share a storage"
    assert base.tolist() == list(range(12)), "and not the original's"


@contract("R-04")
def test_modules_optimizers_and_parameters(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(6, 4, device=device)).sum().backward()
    optimizer.step()
    for where in ("cpu", "mojo:0", "mojo:1"):
        state = save_and_load({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, map_location=where)
        fresh = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)).to(where)
        fresh.load_state_dict(state["model"])
        torch.optim.AdamW(fresh.parameters()).load_state_dict(state["optimizer"])
        for mine, theirs in zip(model.state_dict().values(), fresh.state_dict().values(), strict=True):
            assert str(theirs.device) == where and torch.equal(mine.cpu(), theirs.cpu())
    again = copy.deepcopy(model)
    assert again[0].weight.device == device and again[0].weight is not model[0].weight
    parameter = pickle.loads(pickle.dumps(model[0].weight))
    assert isinstance(parameter, torch.nn.Parameter) and parameter.requires_grad and parameter.device == device


@contract("R-04")
def test_a_file_is_loaded_without_the_backend(device, tmp_path):
    path = tmp_path / "tensor.pt"
    torch.save({"x": torch.arange(5.0, device=device)}, path)
    run_python(
        f"""
        import torch
        assert torch.load({str(path)!r}, map_location="cpu")["x"].tolist() == [0, 1, 2, 3, 4]
        """,
        register=False,
    )


@contract("O-04")
def test_saving_waits_for_the_current_stream(device, stream):
    from helpers import opened_meanwhile

    x = torch.zeros(64, device=device)
    torch.accelerator.synchronize()
    with stream:
        gate = Gate()
        x.fill_(5)
        with opened_meanwhile(gate):
            assert bool((save_and_load(x, map_location="cpu") == 5).all())
    with stream:
        gate = Gate()
        x.fill_(6)
        with opened_meanwhile(gate):
            assert bool((pickle.loads(pickle.dumps(x)).cpu() == 6).all())


@contract("R-04")
def test_set_default_device(device, other):
    torch.set_default_device("mojo:1")
    try:
        assert torch.ones(3).device == other and torch.tensor([1.0]).device == other and torch.arange(3).device == other
        assert torch.nn.Linear(2, 2).weight.device == other
        assert torch.get_default_device() == other
    finally:
        torch.set_default_device(None)
    with torch.device("mojo"):
        assert torch.ones(3).device == device
    assert torch.ones(3).device.type == "cpu"
