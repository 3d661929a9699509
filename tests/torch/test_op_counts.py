"""`torch.mojo.op_counts()`: what queues work or makes the host wait is counted, with the reason of a wait."""

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from contract import contract
from helpers import run_python
from torch_mojo_backend import _C
from torch_mojo_backend.testing import Gate, host_waits


@pytest.fixture(autouse=True)
def from_zero():
    torch.mojo.reset_op_counts()
    yield
    torch.mojo.reset_op_counts()


def counted(call: Callable[[], object]) -> dict[str, tuple[int, int, str]]:
    torch.mojo.reset_op_counts()
    call()
    return dict(torch.mojo.op_counts())


def test_what_a_count_is(device):
    x = torch.ones(3, device=device)
    torch.mojo.reset_op_counts()
    x + x
    x.nonzero()
    x.nonzero()
    counts = torch.mojo.op_counts()
    assert list(counts) == ["aten::nonzero", "aten::add.Tensor"], "those that ran inline come first"
    add, nonzero = counts["aten::add.Tensor"], counts["aten::nonzero"]
    assert (add.queued, add.inline, add.reason) == (1, 0, "")
    assert (nonzero.queued, nonzero.inline, nonzero.reason) == (0, 2, "the result depends on data")
    assert isinstance(add, torch.mojo.OpCount)
    torch.mojo.reset_op_counts()
    assert torch.mojo.op_counts() == {}
    x + x
    assert torch.mojo.op_counts() == {"aten::add.Tensor": (1, 0, "")}, "a reason is forgotten with its calls"


QUEUED = {
    "aten::add_.Tensor": lambda x: x.add_(x),
    "aten::mm": lambda x: x @ x,
    "aten::relu": lambda x: x.relu(),
    "aten::normal_": lambda x: x.normal_(),
    "aten::fill_.Scalar": lambda x: x.fill_(2),
    "aten::fill_.Tensor": lambda x: x.fill_(x[0, 0]),
    "aten::zero_": lambda x: x.zero_(),
    "aten::_copy_from": lambda x: x.clone(),
    "aten::arange.start_out": lambda x: torch.arange(4, device=x.device),
    "aten::native_dropout": lambda x: F.dropout(x),
    "aten::convolution_overrideable": lambda x: F.conv2d(x[None, None], x[None, None]),
    "aten::_scaled_dot_product_flash_attention_for_cpu": lambda x: F.scaled_dot_product_attention(*[x[None, None]] * 3),
    "aten::_fused_sgd_": lambda x: torch._fused_sgd_(
        [x],
        [x.clone()],
        [],
        weight_decay=0,
        momentum=0,
        lr=1,
        dampening=0,
        nesterov=False,
        maximize=False,
        is_first_step=True,
    ),
    "aten::_amp_update_scale_": lambda x: torch._amp_update_scale_(
        x.new_ones(()), torch.zeros((), dtype=torch.int32, device=x.device), x.new_zeros(()), 2.0, 0.5, 2
    ),
}


@contract("O-01")
@pytest.mark.parametrize("name", QUEUED)
def test_what_is_queued(device, name):
    x = torch.ones(4, 4, device=device)
    counts = counted(lambda: QUEUED[name](x))
    assert counts[name][0] >= 1
    assert all(inline == 0 and reason == "" for _, inline, reason in counts.values())


def test_a_conversion_of_the_dtype_counts_as_the_copy_that_it_is(device):
    x = torch.ones(4, device=device)
    for call in (lambda: x.double(), lambda: x.to(device, torch.int64), lambda: x.expand(2, 4).contiguous()):
        assert counted(call) == {"aten::_copy_from": (1, 0, "")}


def test_the_cells_and_their_backward(device):
    lstm, gru = torch.nn.LSTM(3, 4).to(device), torch.nn.GRU(3, 4).to(device)
    x = torch.randn(2, 1, 3, device=device)
    for module, cell in ((lstm, "lstm"), (gru, "gru")):
        counts = counted(lambda module=module: module(x)[0].sum().backward())
        backward = [name for name in counts if name.startswith(f"aten::_thnn_fused_{cell}_cell_backward")]
        assert counts[f"aten::_thnn_fused_{cell}_cell"][:2] == (2, 0)
        assert [counts[name][:2] for name in backward] == [(2, 0)]


def test_a_convolutions_backward(device):
    convolution = torch.nn.Conv2d(1, 1, 2).to(device)
    counts = counted(lambda: convolution(torch.ones(1, 1, 4, 4, device=device)).sum().backward())
    assert counts["aten::convolution_overrideable"] == (1, 0, "")
    assert counts["aten::convolution_backward_overrideable"] == (1, 0, "")


def test_memory_that_grows_is_a_copy(device):
    x = torch.ones(4, device=device)
    assert counted(lambda: x.resize_(2)) == {}
    assert counted(lambda: x.resize_(100)) == {"aten::resize_": (1, 0, "")}
    assert counted(lambda: torch.empty(0, device=device).resize_(3)) == {}


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.view(-1),
        lambda x: x.t(),
        lambda x: x[1:],
        lambda x: torch.empty_like(x),
        lambda x: x.detach(),
        lambda x: x.record_stream(torch.accelerator.current_stream()),
        lambda x: x.copy_(x),
        lambda x: torch.empty(0, device=x.device).fill_(1),
    ],
)
def test_what_queues_nothing_is_not_counted(device, call):
    x = torch.ones(4, 4, device=device)
    assert counted(lambda: call(x)) == {}


INLINE = {
    "item": (lambda x: x[0].item(), "aten::_local_scalar_dense", "gives a value to the host"),
    "bool": (lambda x: bool(x[0]), "aten::_local_scalar_dense", "gives a value to the host"),
    "cpu": (lambda x: x.cpu(), "aten::_copy_from", "the data is in host memory when the call returns"),
    "tolist": (lambda x: x.tolist(), "aten::_copy_from", "the data is in host memory when the call returns"),
    "a destination with gaps": (
        lambda x: torch.zeros(8)[::2].copy_(x),
        "aten::_copy_from",
        "the data is in host memory when the call returns",
    ),
    "mask": (lambda x: x[x > 0], "aten::index.Tensor", "an index is a mask"),
    "masked_select": (lambda x: x.masked_select(x > 0), "aten::masked_select", "the result depends on data"),
    "equal": (lambda x: torch.equal(x, x.clone()), "aten::equal", "the result depends on data"),
    "overlap": (
        lambda x: torch.cumsum(x.view(4), 0, out=x),
        "aten::cumsum.out",
        "an output overlaps itself or an input",
    ),
    "bin edges": (
        lambda x: torch._histogramdd_bin_edges(x[:, None], [3]),
        "aten::_histogramdd_bin_edges",
        "it returns something else than tensors",
    ),
}


@contract("O-04")
@pytest.mark.parametrize("kind", INLINE)
def test_what_makes_the_host_wait_says_why(device, kind):
    call, name, reason = INLINE[kind]
    x = torch.ones(4, device=device)
    counts = counted(lambda: call(x))
    assert counts[name] == (0, 1, reason)
    assert {other for other, count in counts.items() if count[1]} == {name}


def test_an_op_that_no_rule_knows_the_shapes_of_says_so(device):
    waited = {name: reason for name, service, reason in _C.list_ops() if service == "waited"}
    name, reason = "aten::_standard_gamma_grad", "no rule tells the shapes of its results"
    if name not in waited:
        pytest.skip("it has a rule now")
    assert waited[name] == reason
    x = torch.ones(4, device=device)
    assert counted(lambda: torch._standard_gamma_grad(x, x))[name] == (0, 1, reason)


@pytest.mark.slow
def test_shapes_that_could_not_be_inferred_from_the_arguments_of_a_call():
    # No op of core is known to need it: the Meta kernel of one is replaced by a kernel that sometimes cannot tell.
    run_python(
        """
        def shape_of(a, b, p, mode):
            if p == 3:
                raise NotImplementedError("depends on more than shapes")
            return a.new_empty(a.size(0), b.size(0))

        library = torch.library.Library("aten", "IMPL", "Meta")
        library.impl("_cdist_forward", shape_of)
        x = torch.randn(4, 3)
        y = x.to("mojo")
        for p in (2.0, 3.0):
            torch.mojo.reset_op_counts()
            result = torch.ops.aten._cdist_forward(y, y, p, None)
            count = torch.mojo.op_counts()["aten::_cdist_forward"]
            if p == 3:
                assert count == (0, 1, "the shapes could not be inferred from these arguments"), count
            else:
                assert count == (1, 0, ""), count
            torch.testing.assert_close(result.cpu(), torch.cdist(x, x, p))
        """
    )


def test_an_op_whose_kernel_is_written_in_python(device):
    library = torch.library.Library("mojo_counts", "DEF")
    library.define("repeat(Tensor x, int times) -> Tensor")
    library.impl("repeat", lambda x, times: x.repeat(times), "CPU")
    x = torch.ones(2, device=device)
    counts = counted(lambda: torch.ops.mojo_counts.repeat(x, 2))
    assert counts["mojo_counts::repeat"] == (0, 1, "its CPU kernel is written in Python")


def test_every_inline_call_has_a_reason_and_is_all_that_waits(device):
    """With the stream held, calls counted as queued return; the host waits exactly where a call counts as inline."""
    x = torch.randn(4, 4, device=device)
    calls = [*QUEUED.values(), *(lambda x, call=call: call(x.flatten()[:4]) for call, _, _ in INLINE.values())]
    for call in calls:
        torch.accelerator.synchronize()
        torch.mojo.reset_op_counts()
        torch.mojo._sleep(3_000_000)
        before = host_waits()
        call(x)
        counts = torch.mojo.op_counts()
        assert (host_waits() != before) == any(count.inline for count in counts.values()), counts
        assert all(bool(count.reason) == bool(count.inline) for count in counts.values()), counts


def test_several_reasons_of_one_op(device):
    x = torch.ones(4, device=device)
    target = torch.empty(4, pin_memory=True)
    counts = counted(lambda: (x.cpu(), target.copy_(x, non_blocking=True), x.clone()))
    assert counts["aten::_copy_from"] == (2, 1, "the data is in host memory when the call returns")


def test_an_upload_past_the_staging_bound():
    run_python(
        """
        x = torch.ones(1 << 18)
        y = torch.empty(1 << 18, device="mojo")
        torch.mojo.reset_op_counts()
        y.copy_(x)
        assert torch.mojo.op_counts() == {"aten::_copy_from": (1, 0, "")}, torch.mojo.op_counts()
        torch.mojo._sleep(75_000_000)
        y.copy_(x)
        y.copy_(x)
        y.copy_(x)
        count = torch.mojo.op_counts()["aten::_copy_from"]
        assert count.inline >= 1 and count.reason == "the staging bound was reached", count
        """,
        STAGING_BYTES="2M",
    )


def test_a_device_with_one_queue():
    run_python(
        """
        torch.ones(4, device="mojo").zero_()
        torch.mojo.reset_op_counts()
        x = torch.ones(4).to("mojo")
        assert torch.mojo.op_counts() == {"aten::_copy_from": (0, 1, "the device has one queue")}
        y = torch.empty(4, device="mojo:1")
        torch.mojo.reset_op_counts()
        y.copy_(x)
        assert torch.mojo.op_counts() == {"aten::_copy_from": (0, 1, "the device has one queue")}
        """,
        HOST_PROFILE="single-queue",
        HOST_DEVICES="2",
    )


def test_calls_of_all_threads_are_counted(device):
    x = torch.ones(4, device=device)
    torch.mojo.reset_op_counts()

    def work() -> None:
        for _ in range(500):
            x + 1
        x.nonzero()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = torch.mojo.op_counts()
    assert counts["aten::add.Tensor"] == (2000, 0, "") and counts["aten::nonzero"].inline == 4


def test_an_op_that_is_registered_again_goes_on_counting(device):
    def call() -> None:
        library = torch.library.Library("mojo_again", "DEF")
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        torch.ops.mojo_again.twice.default(torch.ones(2, device=device))
        library._destroy()
        del torch.ops.mojo_again

    torch.mojo.reset_op_counts()
    call()
    call()
    assert torch.mojo.op_counts()["mojo_again::twice"] == (0, 2, "its CPU kernel is written in Python")


def test_a_call_that_raises_is_not_counted(device):
    x = torch.ones(4, device=device)
    torch.mojo.reset_op_counts()
    with pytest.raises(RuntimeError):
        x + torch.ones(3, device=device)[:2]
    assert "aten::add.Tensor" not in torch.mojo.op_counts()


def test_counting_waits_for_nothing(device):
    x = torch.ones(4, device=device)
    torch.accelerator.synchronize()
    with Gate():
        x + x
        before = host_waits()
        assert torch.mojo.op_counts()["aten::add.Tensor"].queued == 1
        torch.mojo.reset_op_counts()
        assert host_waits() == before
