"""Sparse, quantized and nested tensors are not on the device: every way to make one raises one clear error, and leaves
nothing behind."""

import gc
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch_mojo_backend.testing import Gate, assert_no_host_wait

D = torch.device("mojo", 0)
REFUSED = r"^mojo backend: .*(sparse, quantized and nested tensors|of layout \w+) are not supported on the device"
# What torch says of its own prototypes.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in ("The PyTorch API of nested tensors", "Sparse", ".*quantized tensor creation functions")
]

INDICES, VALUES = torch.tensor([[0, 1], [0, 1]]), torch.tensor([1.0, 2.0])
COMPRESSED, PLAIN = torch.tensor([0, 1, 2]), torch.tensor([0, 1])


def sparse() -> torch.Tensor:
    return torch.sparse_coo_tensor(INDICES, VALUES, (2, 2))


def csr() -> torch.Tensor:
    return torch.sparse_csr_tensor(COMPRESSED, PLAIN, VALUES, (2, 2))


def quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)


def nested() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def saved(value: torch.Tensor) -> io.BytesIO:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return buffer


# `x`: a float32 tensor of 2 x 2 on the device. All raise at the call.
MAKERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "to_sparse": lambda x: x.to_sparse(),
    "to_sparse with sparse_dim": lambda x: x.to_sparse(1),
    "to_sparse with layout": lambda x: x.to_sparse(layout=torch.sparse_csr),
    "to_sparse_csr": lambda x: x.to_sparse_csr(),
    "to_sparse_csc": lambda x: x.to_sparse_csc(),
    "to_sparse_bsr": lambda x: x.to_sparse_bsr((1, 1)),
    "to_sparse_bsc": lambda x: x.to_sparse_bsc((1, 1)),
    "sparse_coo_tensor": lambda x: torch.sparse_coo_tensor(INDICES, VALUES, (2, 2), device=D),
    "sparse_coo_tensor of ours": lambda x: torch.sparse_coo_tensor(x.long(), x[0]),
    "sparse_coo_tensor, checked": lambda x: torch.sparse_coo_tensor(x.long(), x[0], (9, 9), check_invariants=True),
    "sparse_coo_tensor, empty": lambda x: torch.sparse_coo_tensor((2, 2), device=D),
    "sparse_csr_tensor": lambda x: torch.sparse_csr_tensor(COMPRESSED, PLAIN, VALUES, (2, 2), device=D),
    "sparse_csr_tensor of ours": lambda x: torch.sparse_csr_tensor(x.long().flatten()[:3], x[0].long(), x[0]),
    "sparse_csc_tensor": lambda x: torch.sparse_csc_tensor(COMPRESSED, PLAIN, VALUES, (2, 2), device=D),
    "sparse_bsr_tensor": lambda x: torch.sparse_bsr_tensor([0, 1], [0], torch.ones(1, 2, 2), (2, 2), device=D),
    "sparse_bsc_tensor": lambda x: torch.sparse_bsc_tensor([0, 1], [0], torch.ones(1, 2, 2), (2, 2), device=D),
    "sparse_compressed_tensor": lambda x: torch.sparse_compressed_tensor(
        COMPRESSED, PLAIN, VALUES, (2, 2), layout=torch.sparse_csr, device=D
    ),
    "empty, sparse": lambda x: torch.empty(2, 2, layout=torch.sparse_coo, device=D),
    "empty, csr": lambda x: torch.empty(2, 2, layout=torch.sparse_csr, device=D),
    "zeros, sparse": lambda x: torch.zeros(2, 2, layout=torch.sparse_coo, device=D),
    "zeros, csr": lambda x: torch.zeros(2, 2, layout=torch.sparse_csr, device=D),
    "empty_like": lambda x: torch.empty_like(x, layout=torch.sparse_coo),
    "zeros_like": lambda x: torch.zeros_like(x, layout=torch.sparse_coo),
    "empty_like of a sparse tensor": lambda x: torch.empty_like(sparse(), device=D),
    "new_empty": lambda x: x.new_empty(2, layout=torch.sparse_coo),
    "to(device) of sparse": lambda x: sparse().to(D),
    "to(device) of csr": lambda x: csr().to(D),
    "mojo() of sparse": lambda x: sparse().mojo(),
    "load": lambda x: torch.load(saved(sparse()), map_location="mojo"),
    "copy_ from sparse": lambda x: x.copy_(sparse()),
    "copy_ to sparse": lambda x: sparse().copy_(x),
    "add": lambda x: x + sparse(),
    "mul": lambda x: x * sparse(),
    "sparse.mm": lambda x: torch.sparse.mm(sparse(), x),
    "sparse @ ours": lambda x: sparse() @ x,
    "csr @ ours": lambda x: csr() @ x,
    "sparse.addmm": lambda x: torch.sparse.addmm(x, sparse(), x),
    "sspaddmm": lambda x: torch.sspaddmm(sparse(), sparse(), x),
    "sparse_mask": lambda x: x.sparse_mask(sparse()),
    "spdiags": lambda x: torch.sparse.spdiags(x, torch.tensor([0, 1]), (2, 2)),
    "quantize_per_tensor": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "quantize_per_tensor by tensors": lambda x: torch.quantize_per_tensor(x, x[0, 0], x[0, 1].int(), torch.qint8),
    "quantize_per_tensor_dynamic": lambda x: torch.quantize_per_tensor_dynamic(x, torch.qint8, False),
    "quantize_per_channel": lambda x: torch.quantize_per_channel(x, x[0], x[1], 0, torch.qint8),
    "empty, qint8": lambda x: torch.empty(2, dtype=torch.qint8, device=D),
    "to qint8": lambda x: x.to(torch.qint8),
    "to(device) of quantized": lambda x: quantized().to(D),
    "copy_ from quantized": lambda x: x.copy_(quantized()),
    "_make_per_tensor_quantized_tensor": lambda x: torch._make_per_tensor_quantized_tensor(x.to(torch.int8), 0.1, 0),
    "nested_tensor of ours": lambda x: torch.nested.nested_tensor([x, x[:1]]),
    "nested_tensor": lambda x: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device=D) * 2,
    "as_nested_tensor": lambda x: torch.nested.as_nested_tensor([x, x[:1]]),
    "to(device) of nested": lambda x: nested().to(D),
    "_nested_tensor_from_mask": lambda x: torch._nested_tensor_from_mask(x[None], x.bool()[:1]),
    "to_mkldnn": lambda x: x.to_mkldnn(),
}
# Raise when backward would make a sparse gradient.
BACKWARD: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "embedding": lambda w: F.embedding(torch.tensor([0, 1], device=D), w, sparse=True),
    "embedding_bag": lambda w: F.embedding_bag(torch.tensor([[0, 1]], device=D), w, sparse=True, mode="sum"),
    "gather": lambda w: torch.gather(w, 0, torch.tensor([[0, 1]], device=D), sparse_grad=True),
}


@pytest.fixture
def x() -> torch.Tensor:
    return torch.tensor([[1.0, 0.0], [0.0, 2.0]], device=D)


def check_nothing_is_left(x: torch.Tensor) -> None:
    torch.accelerator.synchronize()  # raises a failure that was kept
    assert x.tolist() == [[1.0, 0.0], [0.0, 2.0]]
    y = x.clone().requires_grad_()
    (y @ y).sum().backward()
    assert y.grad.tolist() == [[2.0, 3.0], [3.0, 4.0]]


@pytest.mark.parametrize("name", MAKERS)
def test_one_clear_error_at_the_call(x, name):
    with pytest.raises(NotImplementedError, match=REFUSED):
        MAKERS[name](x)
    check_nothing_is_left(x)


def test_the_errors_do_not_wait_and_leave_no_memory_in_use(x):
    """Nothing is read from the device to find out: not even where indices are checked."""
    at_its_first_use = {"nested_tensor"}  # core makes it without asking the device
    gc.collect()
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    with Gate(timeout=30), assert_no_host_wait():
        for name in MAKERS.keys() - at_its_first_use:
            with pytest.raises(NotImplementedError):
                MAKERS[name](x)
                raise AssertionError(name)
    gc.collect()
    assert torch.accelerator.memory_allocated() == before


@pytest.mark.parametrize("name", BACKWARD)
def test_sparse_gradients_raise_in_backward(x, name):
    weight = x.clone().requires_grad_()
    out = BACKWARD[name](weight)
    with pytest.raises(NotImplementedError, match=REFUSED):
        out.sum().backward()
    check_nothing_is_left(x)


def test_questions_about_layouts_are_answered_as_on_cpu(x):
    for place in (x, x.cpu()):
        assert not place.is_sparse and not place.is_quantized and not place.is_nested and not place.is_sparse_csr
        assert place.layout == torch.strided and place.to_dense() is place and place.dequantize().dtype == torch.float32
        for ask in (lambda: place.indices(), lambda: place.crow_indices(), lambda: place.is_coalesced()):  # noqa: B023
            with pytest.raises(RuntimeError, match="but got Strided"):
                ask()
        for ask in (lambda: place.q_scale(), lambda: place.int_repr()):  # noqa: B023
            with pytest.raises(NotImplementedError, match="Could not run 'aten::"):
                ask()


def test_dense_results_of_sparse_tensors_go_to_the_device(x):
    assert torch.equal(sparse().to_dense().to(D), x)
    assert torch.equal(quantized().dequantize().to(D).cpu(), torch.ones(2, 2))
    assert x.to_dense() is x


def test_a_transformer_takes_padded_sequences(x):
    """The fast path of nn.TransformerEncoder packs them into a nested tensor, where there are any."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder, attention = nn.TransformerEncoder(layer, 2).eval(), nn.MultiheadAttention(8, 2, batch_first=True).eval()
    batch = torch.randn(2, 5, 8)
    padded = torch.tensor([[False, False, False, True, True], [False] * 5])
    with torch.no_grad():
        expected = encoder(batch, src_key_padding_mask=padded)
        attended = attention(batch, batch, batch, key_padding_mask=padded)[0]
        encoder.to(D)
        attention.to(D)
        there = batch.to(D)
        actual = encoder(there, src_key_padding_mask=padded.to(D)).cpu()
        torch.testing.assert_close(attention(there, there, there, key_padding_mask=padded.to(D))[0].cpu(), attended)
    torch.testing.assert_close(actual[~padded], expected[~padded])


def test_jagged_tensors_are_made_of_plain_ones(x):
    """torch.jagged is a class in Python over strided tensors, so it works."""

    def call(place: Any) -> list[torch.Tensor]:
        values = torch.arange(10.0, device=place).view(5, 2).requires_grad_()
        jagged = torch.nested.nested_tensor_from_jagged(values, offsets=torch.tensor([0, 2, 5], device=place))
        out = (jagged * 2).sin() @ torch.ones(2, 3, device=place)
        out.values().sum().backward()
        return [out.values(), values.grad, torch.nested.to_padded_tensor(jagged, 0.0)]

    for actual, expected in zip(call(D), call("cpu"), strict=True):
        torch.testing.assert_close(actual.cpu(), expected)
