"""DLPack for device tensors: row C-14."""

import gc

import pytest
import torch
from contract import contract
from torch.utils.dlpack import DLDeviceType, from_dlpack, to_dlpack
from torch_mojo_backend.testing import Gate

pytestmark = contract("C-14")


@pytest.fixture
def x(device):
    return torch.arange(12.0).view(3, 4).to(device)


def test_the_device_of_a_tensor(x, other):
    assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)
    assert x.to(other).__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)
    assert torch.ones(1).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)


@pytest.mark.parametrize(
    "passed_on",
    [
        torch.from_dlpack,
        from_dlpack,
        lambda x: torch.from_dlpack(to_dlpack(x)),
        lambda x: torch.from_dlpack(x.__dlpack__()),
        lambda x: torch.from_dlpack(x.__dlpack__(max_version=(1, 0))),
        lambda x: torch.from_dlpack(x, device=x.device),
        lambda x: torch.from_dlpack(x, copy=False),
    ],
)
def test_memory_is_shared(x, passed_on):
    y = passed_on(x)
    assert y.device == x.device and y.data_ptr() == x.data_ptr() and torch.equal(y.cpu(), x.cpu())
    y.fill_(3)
    assert bool((x.cpu() == 3).all())


@pytest.mark.parametrize(
    "view", [lambda x: x.t(), lambda x: x[1:, ::2], lambda x: x[0], lambda x: x[2, 3], lambda x: x[:0]]
)
def test_views(x, view):
    y = torch.from_dlpack(view(x))
    assert y.shape == view(x).shape and torch.equal(y.cpu(), view(x).cpu())
    assert y.numel() == 0 or y.data_ptr() == view(x).data_ptr()


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.int8, torch.uint8, torch.int64, torch.complex64, torch.bool]
)
def test_dtypes(x, dtype):
    y = torch.from_dlpack(x.to(dtype))
    assert y.dtype == dtype and torch.equal(y.cpu(), x.to(dtype).cpu())


def test_a_copy_is_another_tensor(x):
    y = torch.from_dlpack(x, copy=True)
    assert y.device == x.device and y.data_ptr() != x.data_ptr() and torch.equal(y.cpu(), x.cpu())


def test_to_other_devices(x, other):
    assert torch.equal(torch.from_dlpack(x, device="cpu"), x.cpu())
    far = torch.from_dlpack(x, device=other)
    assert far.device == other and torch.equal(far.cpu(), x.cpu())
    near = torch.from_dlpack(torch.ones(3), device=x.device)
    assert near.device == x.device and near.tolist() == [1, 1, 1]


def test_the_consumer_keeps_the_memory(device):
    x = torch.arange(12.0).view(3, 4).to(device)  # not the fixture, which outlives the test
    gc.collect()  # what earlier tests left in cycles
    y, allocated = torch.from_dlpack(x), torch.accelerator.memory_allocated()
    del x
    gc.collect()
    assert torch.accelerator.memory_allocated() == allocated
    torch.full((3, 4), -1.0, device=y.device)
    assert torch.equal(y.cpu(), torch.arange(12.0).view(3, 4))
    del y
    assert torch.accelerator.memory_allocated() == allocated - 512


def test_an_imported_tensor_can_record_a_stream(device):
    x = torch.zeros(3, 4, device=device)
    y, address = torch.from_dlpack(x), x.data_ptr()
    side = torch.Stream(x.device)
    torch.accelerator.synchronize()
    with Gate(side):
        y.record_stream(side)
        del x, y
        assert torch.empty(3, 4, device="mojo").data_ptr() != address


@pytest.mark.parametrize("spelling", ["handle", "stream"])
def test_the_consumers_stream_is_ordered_after_the_producers(device, spelling):
    producer, consumer = torch.Stream(device), torch.Stream(device)
    x, y = torch.zeros(4, device=device), torch.zeros(4, device=device)
    torch.accelerator.synchronize()
    with Gate(producer) as gate:
        with producer:
            x.fill_(5)
            capsule = x.__dlpack__(stream=consumer.native_handle if spelling == "handle" else consumer)
        with consumer:
            y.copy_(torch.from_dlpack(capsule))
        assert not gate.is_open and not consumer.query()
    consumer.synchronize()
    assert y.tolist() == [5] * 4


def test_none_means_the_default_stream_and_minus_one_no_order(device):
    producer, x = torch.Stream(device), torch.zeros(4, device=device)
    default = torch.mojo.default_stream(device)
    torch.accelerator.synchronize()
    with Gate(producer), producer:
        x.__dlpack__(stream=-1)
        x.__dlpack__()
        assert default.query()
        x.__dlpack__(stream=None)
        assert not default.query()
        x.__dlpack__(stream=default.native_handle)
        x.__dlpack__(stream=producer.native_handle)


def test_a_copy_for_the_consumer_is_made_before_it_reads(device):
    producer, consumer, x = torch.Stream(device), torch.Stream(device), torch.zeros(4, device=device)
    torch.accelerator.synchronize()
    with Gate(producer):
        with producer:
            x.fill_(5)
            capsule = x.__dlpack__(stream=consumer.native_handle, copy=True)
            x.fill_(6)
        with consumer:
            y = torch.from_dlpack(capsule).clone()
    consumer.synchronize()
    assert y.tolist() == [5] * 4


def test_streams_made_later_are_found(device):
    x = torch.zeros(1, device=device)
    for _ in range(3):
        x.__dlpack__(stream=torch.Stream(device).native_handle)


def test_errors(x, other):
    with pytest.raises(BufferError, match="no stream of mojo:0 has the native handle 0x7b"):
        x.__dlpack__(stream=123)
    with pytest.raises(BufferError, match="the consumer's stream is on mojo:1, the tensor on mojo:0"):
        x.__dlpack__(stream=torch.Stream(other))
    with pytest.raises(TypeError, match="stream must be"):
        x.__dlpack__(stream="0")
    with pytest.raises(BufferError, match="require gradient"):
        x.clone().requires_grad_().__dlpack__()
    with pytest.raises(BufferError, match="conjugate bit"):
        x.to(torch.complex64).conj().__dlpack__()


def test_installing_twice_changes_nothing():
    from torch_mojo_backend import _dlpack

    before = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__
    _dlpack.install()
    assert (torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__) == before


def test_a_subclass_with_torch_function_has_its_say(x):
    seen = []

    class Watching(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    assert x.as_subclass(Watching).__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)
    assert "__dlpack_device__" in seen
