"""Factories, views, storage changes, fills, single values and record_stream on device tensors: as on CPU."""

import gc
import itertools
import math
import pickle
import warnings
from collections.abc import Callable

import pytest
import torch
from contract import contract
from torch_mojo_backend.testing import Gate, assert_no_host_wait


def message_of(call: Callable[[], object]) -> tuple[type, str]:
    with pytest.raises(Exception) as caught:
        call()
    return caught.type, str(caught.value).split("\n")[0]


# Factories -----------------------------------------------------------------------------------------------------------

FACTORIES = [
    lambda d: torch.empty(2, 3, device=d),
    lambda d: torch.empty((), device=d),
    lambda d: torch.empty(0, device=d),
    lambda d: torch.empty(3, 0, 2, device=d),
    lambda d: torch.empty(2, 3, 4, 5, device=d, memory_format=torch.channels_last),
    lambda d: torch.empty(2, 3, 4, 5, 6, device=d, memory_format=torch.channels_last_3d),
    lambda d: torch.empty(2, 3, device=d, memory_format=torch.contiguous_format),
    lambda d: torch.empty(5, dtype=torch.int16, device=d),
    lambda d: torch.empty(5, dtype=torch.bool, device=d),
    lambda d: torch.empty(5, dtype=torch.complex128, device=d),
    lambda d: torch.empty(5, dtype=torch.uint32, device=d),
    lambda d: torch.empty(5, dtype=torch.float8_e4m3fn, device=d),
    lambda d: torch.empty(5, device=d, requires_grad=True),
    lambda d: torch.empty_strided((2, 3), (1, 2), device=d),
    lambda d: torch.empty_strided((2, 3), (10, 3), device=d, dtype=torch.float64),
    lambda d: torch.empty_strided((2, 3), (0, 0), device=d),
    lambda d: torch.empty_strided((0, 3), (3, 1), device=d),
    lambda d: torch.empty_strided((), (), device=d),
    lambda d: torch.empty_like(torch.empty(2, 3, 4, 5, device=d).to(memory_format=torch.channels_last)),
    lambda d: torch.empty_like(torch.empty(4, 6, device=d).t()[::2], dtype=torch.int8),
    lambda d: torch.empty(2, 3, device=d).new_empty(4),
    lambda d: torch.empty(2, 3, device=d).new_empty_strided((2, 2), (1, 2)),
    lambda d: torch.empty_permuted((2, 3, 4), (2, 0, 1), device=d),
]


def form(x: torch.Tensor) -> tuple:
    return x.shape, x.stride(), x.storage_offset(), x.dtype, x.layout, x.requires_grad, x.untyped_storage().nbytes()


@pytest.mark.parametrize("make", FACTORIES)
def test_factories_give_what_cpu_gives(device, make):
    ours, theirs = make(device), make("cpu")
    assert form(ours) == form(theirs) and ours.device == device


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.empty(-1, device=d),
        lambda d: torch.empty(3, -2, device=d),
        lambda d: torch.empty(1 << 62, 1 << 3, device=d),
        lambda d: torch.empty(3, device=d, memory_format=torch.channels_last),
        lambda d: torch.empty(3, device=d, memory_format=torch.preserve_format),
        lambda d: torch.empty_strided((2,), (-1,), device=d),
        lambda d: torch.empty_strided((2, 3), (1,), device=d),
        lambda d: torch.empty_strided((-2,), (1,), device=d),
        lambda d: torch.empty_strided((1 << 62, 8), (8, 1), device=d),
    ],
)
def test_factories_refuse_what_cpu_refuses(device, make):
    gc.collect()  # what earlier tests left in cycles
    before = torch.accelerator.memory_allocated()
    assert message_of(lambda: make(device)) == message_of(lambda: make("cpu"))
    assert torch.accelerator.memory_allocated() == before


def test_what_only_the_device_refuses(device):
    for make in (
        lambda: torch.empty(3, device=device, pin_memory=True),
        lambda: torch.empty_strided((3,), (1,), device=device, pin_memory=True),
        lambda: torch.zeros(3, device=device, pin_memory=True),
    ):
        assert message_of(make) == (RuntimeError, "Only dense CPU tensors can be pinned")
    for layout in (torch.sparse_coo, torch.sparse_csr):
        with pytest.raises(NotImplementedError, match=r"mojo backend: .*only torch\.strided"):
            torch.empty((3, 3), device=device, layout=layout)
    with pytest.raises(RuntimeError, match=r"mojo backend: .*99"):
        torch.empty(3, device="mojo:99")


def test_no_index_means_the_current_device(device, other):
    torch.accelerator.set_device_index(1)
    assert torch.empty(3, device="mojo").device == other
    assert torch.empty_strided((3,), (1,), device="mojo").device == other
    assert torch.empty(3, device=device).device == device
    assert torch.accelerator.current_device_index() == 1


def test_memory_is_valid_in_the_order_of_its_devices_current_stream(device, other):
    far = torch.Stream(other)
    gc.collect()  # what earlier tests left in cycles
    far_before = torch.accelerator.memory_allocated(1)
    with Gate(far), far:
        torch.accelerator.set_device_index(0)
        with assert_no_host_wait():
            x = torch.empty(1 << 10, device=other)
            x.fill_(3)
        assert torch.accelerator.memory_allocated(1) == far_before + 4096
        assert not far.query()
    far.synchronize()
    assert x.cpu().sum().item() == 3 << 10


def test_uninitialised_memory_is_filled_for_deterministic_algorithms(device):
    dtypes = [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.uint8, torch.bool, torch.complex64]
    torch.use_deterministic_algorithms(True)
    try:
        for dtype in dtypes:
            for make in (
                lambda d, dtype=dtype: torch.empty(8, dtype=dtype, device=d),
                lambda d, dtype=dtype: torch.empty_strided((2, 3), (1, 2), dtype=dtype, device=d),
                lambda d, dtype=dtype: torch.zeros(4, dtype=dtype, device=d).resize_(16),
            ):
                ours, theirs = make(device).cpu(), make("cpu")
                assert torch.equal(ours.nan_to_num(7), theirs.nan_to_num(7)) and ours.isnan().equal(theirs.isnan())
    finally:
        torch.use_deterministic_algorithms(False)


def test_tensors_made_in_inference_mode_are_inference_tensors(device):
    with torch.inference_mode():
        assert torch.empty(3, device=device).is_inference()
    assert not torch.empty(3, device=device).is_inference()


# Views ---------------------------------------------------------------------------------------------------------------

VIEWS = [
    lambda x: x.view(24),
    lambda x: x.view(4, -1),
    lambda x: x.view(torch.int32),
    lambda x: x.view(torch.int16),
    lambda x: x.reshape(6, 4),
    lambda x: x.t() if x.dim() == 2 else x.transpose(0, 2),
    lambda x: x.permute(2, 0, 1),
    lambda x: x[1],
    lambda x: x[:, 1:, ::2],
    lambda x: x[..., None],
    lambda x: x.unsqueeze(0).squeeze(),
    lambda x: x.expand(5, 2, 3, 4),
    lambda x: x.diagonal(0, 1, 2),
    lambda x: x.unfold(2, 2, 1),
    lambda x: x.unfold(0, 2, 2),
    lambda x: x.as_strided((2, 2), (3, 1), 4),
    lambda x: x.select(2, 3),
    lambda x: x.narrow(1, 1, 2),
    lambda x: x.movedim(0, 2),
    lambda x: x.flatten(),
    lambda x: x.detach(),
    lambda x: x.view_as(torch.empty(24)),
    lambda x: torch.view_as_complex(x.view(2, 3, 2, 2)),
    lambda x: torch.view_as_real(torch.view_as_complex(x.view(2, 3, 2, 2))),
    lambda x: torch.view_as_complex(x.view(2, 3, 2, 2)).imag,
    lambda x: torch.view_as_complex(x.view(2, 3, 2, 2)).conj(),
    lambda x: torch._neg_view(x),
    lambda x: x.unbind(1)[2],
    lambda x: x.split(2, dim=2)[1],
    lambda x: x.chunk(2, dim=1)[0],
    lambda x: x.swapaxes(0, 1),
    lambda x: x.mT,
    lambda x: torch.ops.aten.alias(x),
    lambda x: torch.ops.aten._reshape_alias(x, (6, 4), (4, 1)),
]


@pytest.mark.parametrize("view", VIEWS)
def test_views_share_memory_and_have_the_form_that_cpu_gives(device, view):
    host = torch.arange(24.0).view(2, 3, 4)
    x = host.to(device)
    with Gate(), assert_no_host_wait():
        ours = view(x)
    theirs = view(host)
    assert form(ours) == form(theirs)
    assert ours.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert ours._is_view() == theirs._is_view()
    assert ours.is_conj() == theirs.is_conj() and ours.is_neg() == theirs.is_neg()
    assert torch.equal(ours.cpu().resolve_neg().resolve_conj(), theirs.resolve_neg().resolve_conj())
    x.zero_()
    host.zero_()
    assert torch.equal(ours.cpu().resolve_neg().resolve_conj(), theirs.resolve_neg().resolve_conj())


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(5),
        lambda x: x.view(-1, -1),
        lambda x: x.t().view(24),
        lambda x: x.view(torch.complex64).view(7),
        lambda x: x[:, :3].view(torch.float64),
        lambda x: x.as_strided((100,), (1,)),
        lambda x: x.as_strided((2,), (-1,)),
        lambda x: x.as_strided((2,), (1,), -1),
        lambda x: x.as_strided((2, 2), (1,)),
        lambda x: x.unfold(1, 9, 1),
        lambda x: x.unfold(3, 1, 1),
        lambda x: x.unfold(0, 1, 0),
        lambda x: torch.view_as_complex(x[:, :3]),
        lambda x: torch.view_as_real(x),
        lambda x: x.expand(3, 4, 7),
        lambda x: x.select(0, 9),
    ],
)
def test_views_refuse_what_cpu_refuses(device, view):
    host = torch.zeros(4, 6)
    assert message_of(lambda: view(host.to(device))) == message_of(lambda: view(host))


def test_autograd_follows_views(device):
    for place in ("cpu", device):
        x = torch.arange(6.0).to(place).requires_grad_()
        y = x.view(2, 3).t()[1:]
        y.backward(torch.full((2, 2), 2.0).to(place))
        assert x.grad.tolist() == [0, 2, 2, 0, 2, 2]
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            x.zero_()


# Storage -------------------------------------------------------------------------------------------------------------


def test_set(device):
    base = torch.arange(12.0).to(device)
    x = torch.empty(0, device=device)
    assert x.set_(base) is x and x.is_set_to(base) and x.data_ptr() == base.data_ptr()
    x.set_(base.untyped_storage(), 2, (2, 3), (1, 2))
    assert x.cpu().tolist() == [[2, 4, 6], [3, 5, 7]] and not x.is_set_to(base)
    x.set_(base.untyped_storage(), 3, (4,))
    assert x.cpu().tolist() == [3, 4, 5, 6]
    x.set_(base.untyped_storage())
    assert x.cpu().tolist() == list(range(12))
    x.set_()
    assert x.shape == (0,) and x.device == device and x.untyped_storage().nbytes() == 0
    x.resize_(3).fill_(2)
    assert x.tolist() == [2] * 3 and base.tolist() == list(range(12))


def test_set_refuses_what_cpu_refuses(device, other):
    def errors(place):
        x = torch.zeros(3, device=place)
        base = torch.zeros(3, device=place)
        return [
            message_of(lambda: x.set_(base.untyped_storage(), -1, (2,), (1,))),
            message_of(lambda: x.set_(base.untyped_storage(), 0, (2,), (1, 1))),
            message_of(lambda: x.set_(base.untyped_storage(), 5, (3,), (1,))),
        ]

    assert errors(device) == errors("cpu")
    with pytest.raises(RuntimeError, match="Attempted to set the storage of a tensor on device"):
        torch.zeros(3, device=device).set_(torch.zeros(3, device=other))


def test_data_assignment_and_swap(device):
    x = torch.zeros(3, device=device, requires_grad=True)
    x.data = torch.ones(2, device=device)
    assert x.tolist() == [1, 1]
    a, b = torch.zeros(1, device=device), torch.ones(1, device=device)
    torch.utils.swap_tensors(a, b)
    assert a.item() == 1 and b.item() == 0


@pytest.mark.parametrize(
    "resize",
    [
        lambda x: x.resize_(3, 2),
        lambda x: x.resize_(2, 3),
        lambda x: x.resize_(2),
        lambda x: x.resize_(0),
        lambda x: x.resize_(4, 100),
        lambda x: x.resize_(1, 2, 3, 4, memory_format=torch.channels_last),
        lambda x: x.resize_as_(torch.empty(5, 5)),
        lambda x: x.t().resize_(6),
        lambda x: x[1:].resize_(9),
        lambda x: x[1:].resize_(0),
        lambda x: x.expand(2, 2, 3).resize_(8),
    ],
)
def test_resize_gives_the_form_that_cpu_gives_and_keeps_the_data(device, resize):
    host = torch.arange(6.0).view(2, 3)
    x = host.to(device)
    ours, theirs = resize(x), resize(host)
    assert form(ours) == form(theirs)
    kept = min(6, theirs.untyped_storage().nbytes() // 4)
    flat = [torch.empty(0, device=t.device).set_(t.untyped_storage()).cpu()[:kept] for t in (ours, theirs)]
    assert torch.equal(*flat)


def test_growing_keeps_what_is_still_queued(device):
    stream, x = torch.Stream(device), torch.zeros(4, device=device)
    torch.accelerator.synchronize()
    with Gate(stream), stream, assert_no_host_wait():
        x.fill_(5)
        x.resize_(1 << 12)
        x[4:].fill_(6)
        junk = torch.full((4,), -1.0, device=device)  # may take the memory that was freed, behind the copy
    stream.synchronize()
    assert x.cpu().tolist() == [5] * 4 + [6] * ((1 << 12) - 4) and junk.tolist() == [-1] * 4


def test_growing_on_another_stream_than_the_owners_is_safe(device):
    owner, user = torch.Stream(device), torch.Stream(device)
    with owner:
        x = torch.full((1 << 10,), 5.0, device=device)
    torch.accelerator.synchronize()
    with Gate(user):
        with user:
            x.resize_(1 << 12)
        with owner:
            torch.full((1 << 10,), -1.0, device=device)
        owner.synchronize()
    user.synchronize()
    assert bool((x[: 1 << 10].cpu() == 5).all())


@pytest.mark.parametrize(
    "resize",
    [
        lambda x: x.resize_(-1),
        lambda x: x.resize_(3, memory_format=torch.channels_last),
        lambda x: x.resize_(3, memory_format=torch.preserve_format),
        lambda x: x.resize_(1 << 62, 8),
    ],
)
def test_resize_refuses_what_cpu_refuses(device, resize):
    assert message_of(lambda: resize(torch.zeros(2, device=device))) == message_of(lambda: resize(torch.zeros(2)))


def test_a_resize_that_runs_out_of_memory_leaves_the_tensor_as_it_was(device):
    x = torch.arange(4.0).to(device)
    with pytest.raises(torch.OutOfMemoryError):
        x.resize_(1 << 50)
    assert x.shape == (4,) and x.tolist() == [0, 1, 2, 3]


def test_untyped_storage(device):
    x = torch.arange(4.0).to(device)
    storage = x.untyped_storage()
    assert storage.device == device and storage.nbytes() == 16
    storage.resize_(64)
    assert storage.nbytes() == 64 and x.tolist() == [0, 1, 2, 3]
    copy = storage.clone()
    assert copy.data_ptr() != storage.data_ptr() and copy.cpu()[:16].tolist() == storage.cpu()[:16].tolist()
    storage.fill_(0)
    assert x.tolist() == [0] * 4
    storage.resize_(0)
    assert storage.nbytes() == 0
    assert pickle.loads(pickle.dumps(torch.arange(3.0).to(device))).tolist() == [0, 1, 2]


# Fills ---------------------------------------------------------------------------------------------------------------

FILL_DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
    torch.bool, torch.complex32, torch.complex64, torch.complex128,
]  # fmt: skip


def raw(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage()).cpu()


@pytest.mark.parametrize("dtype", FILL_DTYPES)
def test_fill_gives_the_bytes_that_cpu_gives(device, dtype):
    values = [0, 1, -1, 3, 0.5, -2.75, True, 1 + 2j, 300, 1e30, math.nan, math.inf, 1 << 40]
    layouts = [
        lambda x: x.view(4, 6),
        lambda x: x.view(4, 6).t(),
        lambda x: x.view(4, 6)[:, ::2],
        lambda x: x[5:17],
        lambda x: x[:0],
        lambda x: x[3],
        lambda x: x[:1].expand(7),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for value, layout in itertools.product(values, layouts):
            ours, theirs = torch.zeros(24, dtype=dtype, device=device), torch.zeros(24, dtype=dtype)
            try:
                layout(theirs).fill_(value)
            except RuntimeError as error:
                with pytest.raises(RuntimeError) as caught:
                    layout(ours).fill_(value)
                assert str(caught.value).split("\n")[0] == str(error).split("\n")[0]
            else:
                assert layout(ours).fill_(value).device == device
            assert torch.equal(raw(ours), raw(theirs)), (value, layout(theirs).shape)


def test_fill_with_a_tensor(device, other):
    x = torch.zeros(4, device=device)
    assert x.fill_(torch.tensor(2.5)).tolist() == [2.5] * 4
    assert x.fill_(torch.tensor(3, device=device)).tolist() == [3] * 4
    assert x.fill_(torch.tensor(4.0, device=other)).tolist() == [4] * 4
    x = torch.arange(4.0).to(device)
    assert x.fill_(x[2]).tolist() == [2] * 4
    assert message_of(lambda: x.fill_(torch.ones(2))) == message_of(lambda: torch.zeros(1).fill_(torch.ones(2)))
    stream = torch.Stream(device)
    value = torch.zeros((), device=device)
    torch.accelerator.synchronize()
    with Gate(stream), stream, assert_no_host_wait():
        value.fill_(7)
        x.fill_(value)
    stream.synchronize()
    assert x.tolist() == [7] * 4


def test_zero_and_lazy_bits(device):
    x = torch.full((4,), 1 + 2j, device=device)
    x.conj().fill_(1 + 2j)
    assert x.tolist() == [1 - 2j] * 4
    torch._neg_view(x).fill_(1)
    assert x.tolist() == [-1] * 4
    x.imag.fill_(3)
    assert x.tolist() == [-1 + 3j] * 4
    assert x.zero_().tolist() == [0] * 4
    assert torch.zeros(2, 3, device=device).sum().item() == 0
    assert torch.full((2,), 3, device=device).tolist() == [3, 3]


# Single values -------------------------------------------------------------------------------------------------------


@contract("O-04")
@pytest.mark.parametrize("dtype", FILL_DTYPES)
def test_item(device, dtype):
    for value in (0, 1, 1.5, -2, 3 + 4j):
        try:
            host = torch.full((3,), value, dtype=dtype)
        except RuntimeError:
            continue
        x, expected = host.to(device), host[1].item()
        assert x[1].item() == expected and type(x[1].item()) is type(expected)
        if dtype.is_complex:
            assert x.conj()[1].item() == expected.conjugate()
            assert x.imag[1].item() == expected.imag


@pytest.mark.parametrize("shape", [(0,), (2,)])
def test_item_refuses_what_cpu_refuses(device, shape):
    theirs = message_of(lambda: torch.zeros(shape).item())
    assert message_of(lambda: torch.zeros(shape, device=device).item()) == theirs


# record_stream -------------------------------------------------------------------------------------------------------


@contract("M-02")
@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x[100:], lambda x: x.view(32, 32).t()[3], torch.conj, torch._neg_view]
)
@pytest.mark.parametrize("far", [False, True])
def test_record_stream_keeps_the_whole_storage_for_streams_of_any_device(device, other, view, far):
    owner, user = torch.Stream(device), torch.Stream(other if far else device)
    with owner:
        base = torch.ones(1 << 10, dtype=torch.complex64, device=device)
    torch.accelerator.set_device_index(0)
    owner.synchronize()
    address, part = base.data_ptr(), view(base)
    with Gate(user):
        with assert_no_host_wait():
            part.record_stream(user)
        del base, part
        with owner:
            assert torch.empty(1 << 10, dtype=torch.complex64, device=device).data_ptr() != address
    user.synchronize()
    torch.accelerator.set_device_index(0)
    with owner:  # now it is among what the owner gets next
        taken = [torch.empty(1 << 10, dtype=torch.complex64, device=device) for _ in range(16)]
        assert address in [x.data_ptr() for x in taken]


def test_record_stream_refuses_a_stream_that_does_not_exist(device):
    x = torch.ones(3, device=device)
    kind = torch.accelerator.current_stream().device_type
    with pytest.raises(RuntimeError, match="mojo backend: "):
        x.record_stream(torch.Stream(stream_id=123456, device_index=0, device_type=kind))
    torch.zeros(0, device=device).record_stream(torch.Stream(device))
