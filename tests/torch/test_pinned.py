"""Pinned host memory: rows C-08 to C-11."""

import pytest
import torch
from contract import contract
from torch_mojo_backend.testing import Gate, assert_no_host_wait

# Row C-09: with CUDA and a GPU, torch's factories and `to("cpu", non_blocking=True)` give CUDA's pinned memory.
pins_for_us = pytest.mark.skipif(torch.cuda.is_available(), reason="torch's factories pin for CUDA here")


@contract("C-08")
def test_pin_memory(device):
    x = torch.randn(37)
    pinned = x.pin_memory()
    assert not x.is_pinned() and pinned.is_pinned() and pinned.device.type == "cpu"
    assert pinned.data_ptr() != x.data_ptr() and torch.equal(pinned, x)
    again = pinned.pin_memory()
    assert again.data_ptr() == pinned.data_ptr(), "pinning what is pinned copies nothing"
    with pytest.raises(RuntimeError):
        torch.ones(3, device=device).pin_memory()
    assert not torch.ones(3, device=device).is_pinned()


@contract("C-08")
@pins_for_us
def test_views_of_pinned_memory_are_pinned():
    pinned = torch.zeros(64, 64).pin_memory()
    for view in (pinned[3:], pinned[:, 5], pinned.t(), pinned[63:, 63:], pinned.view(-1)[4095:], pinned.detach()):
        assert view.is_pinned()
    assert pinned.numpy().size == 4096 and torch.from_numpy(pinned.numpy()[7:]).is_pinned()
    assert not torch.zeros(64).is_pinned()
    assert pinned.untyped_storage().is_pinned()


@contract("C-08")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(100, pin_memory=True),
        lambda: torch.zeros(100, pin_memory=True),
        lambda: torch.tensor([1.0] * 100, pin_memory=True),
        lambda: torch.randn(100, pin_memory=True),
        lambda: torch.empty_strided((10, 10), (10, 1), pin_memory=True),
        lambda: torch.empty(1).new_empty(100, pin_memory=True),
        lambda: torch.zeros(100).untyped_storage().pin_memory(),
    ],
)
@pins_for_us
def test_factories_give_our_pinned_memory(make):
    before = torch.mojo.host_memory_stats().get("active_bytes.current", 0)
    made = make()
    assert made.is_pinned()
    assert torch.mojo.host_memory_stats()["active_bytes.current"] >= before + 400, "it is this backend's memory"


@contract("C-08")
@pins_for_us
def test_pinned_memory_is_exact_and_reused(device):
    torch.zeros(1, device=device)
    n = 3 * 1000 * 1000  # a power of two would waste a quarter
    before = torch.mojo.host_memory_stats()
    x = torch.empty(n, dtype=torch.uint8, pin_memory=True)
    during = torch.mojo.host_memory_stats()
    assert n <= during["allocated_bytes.current"] - before["allocated_bytes.current"] <= n + 8192
    address = x.data_ptr()
    del x
    y = torch.empty(n, dtype=torch.uint8, pin_memory=True)
    assert y.data_ptr() == address, "freed pinned memory is cached"
    del y
    if hasattr(torch.accelerator, "empty_host_cache"):
        torch.accelerator.empty_host_cache()
        assert torch.mojo.host_memory_stats()["allocated_bytes.current"] <= before["allocated_bytes.current"]


@contract("C-08")
def test_dataloader_pins():
    data = torch.utils.data.TensorDataset(torch.arange(64.0), torch.arange(64))
    for x, y in torch.utils.data.DataLoader(data, batch_size=16, pin_memory=True):
        assert x.is_pinned() and y.is_pinned()


@contract("C-08")
def test_zero_elements(device):
    for shape in ((0,), (0, 5), (3, 0, 2)):
        empty = torch.empty(shape)
        assert not empty.is_pinned()
        pinned = empty.pin_memory()
        made = torch.empty(shape, pin_memory=True)
        on_device = pinned.to(device, non_blocking=True)
        made.copy_(on_device, non_blocking=True)
        assert on_device.shape == made.shape == shape
    torch.accelerator.synchronize()


@contract("C-10")
@pytest.mark.parametrize("pin_on", [0, 1])
@pytest.mark.parametrize("use_on", [0, 1])
@pins_for_us
def test_pinned_memory_counts_as_pinned_for_every_device(pin_on, use_on):
    with torch.accelerator.device_index(pin_on):
        up, down = torch.full((1 << 12,), 3.0).pin_memory(), torch.empty(1 << 12, pin_memory=True)
    s = torch.Stream(torch.device("mojo", use_on))
    with s:
        x = torch.empty(1 << 12, device=s.device)
        torch.accelerator.synchronize()
        with Gate(s), assert_no_host_wait():
            x.copy_(up, non_blocking=True)
            up_again = x + 1
            down.copy_(up_again, non_blocking=True)
            assert not s.query()
            up.fill_(5.0)  # read when the copy runs: had it been staged, the old value would arrive
        s.synchronize()
    assert bool((down == 6).all())


@contract("C-11")
def test_a_block_freed_while_an_upload_is_pending_is_not_reused(device, stream):
    for part in (slice(None), slice(8, 40)):
        x = torch.zeros(64, device=device)
        torch.accelerator.synchronize()
        pinned = torch.arange(64.0).pin_memory()
        address, expected = pinned.data_ptr(), pinned[part].clone()
        with Gate(stream):
            with stream:
                x[part].copy_(pinned[part], non_blocking=True)
            del pinned
            others = [torch.full((64,), -1.0).pin_memory() for _ in range(8)]
            assert address not in [o.data_ptr() for o in others]
        stream.synchronize()
        assert torch.equal(x[part].cpu(), expected)
        del others


@contract("C-11")
@pins_for_us
def test_a_block_freed_while_a_download_is_pending_is_not_reused(device, stream):
    x = torch.full((64,), 7.0, device=device)
    torch.accelerator.synchronize()
    with Gate(stream):
        with stream:
            pinned = x.to("cpu", non_blocking=True)
        address = pinned.data_ptr()
        del pinned
        others = [torch.full((64,), -1.0).pin_memory() for _ in range(8)]
        assert address not in [o.data_ptr() for o in others]
    stream.synchronize()
    assert all(bool((o == -1).all()) for o in others)
    others.append(torch.full((64,), -1.0).pin_memory())
    assert address in [o.data_ptr() for o in others], "and is given back after it"


@contract("C-11")
def test_a_block_used_by_two_devices(device, other):
    near, far = torch.Stream(device), torch.Stream(other)
    x, y = torch.zeros(1, device=device), torch.zeros(1, device=other)
    torch.accelerator.synchronize(0)
    torch.accelerator.synchronize(1)
    pinned = torch.ones(1).pin_memory()
    address = pinned.data_ptr()
    with Gate(far):
        with far:
            y.copy_(pinned, non_blocking=True)
        torch.accelerator.set_device_index(0)
        with near:
            x.copy_(pinned, non_blocking=True)
        near.synchronize()
        del pinned
        second = torch.full((1,), 2.0).pin_memory()
        assert second.data_ptr() != address
    far.synchronize()
    assert x.item() == 1
    with far:
        assert y.item() == 1


@contract("C-08")
def test_asking_whether_memory_is_pinned_starts_nothing():
    from helpers import run_python

    run_python(
        """
        import os
        from torch_mojo_backend import _C
        threads = len(os.listdir("/proc/self/task"))
        assert not torch.zeros(3).is_pinned()
        assert len(os.listdir("/proc/self/task")) == threads and not _C.is_open(0)
        """
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA and a GPU")
@pytest.mark.parametrize("non_blocking", [True, False])
def test_copies_with_cudas_pinned_memory_are_right(device, non_blocking):  # C-09
    x = torch.empty(1 << 20, pin_memory=True)
    assert x.is_pinned("cuda") and torch.accelerator.current_accelerator() == torch.device("mojo")
    x.fill_(3)
    with Gate():
        y = x.to(device, non_blocking=non_blocking) + 1
    back = torch.empty(1 << 20, pin_memory=True)
    back.copy_(y, non_blocking=non_blocking)
    torch.accelerator.synchronize()
    assert back.eq(4).all()
    assert x.to("cuda", non_blocking=non_blocking).to(device).eq(3).all().item()
    assert y.to("cuda").eq(4).all().item()
