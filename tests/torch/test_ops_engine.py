"""How ops are served: queued or waited for, errors at the call or later, what a queued task holds and how it runs."""

import gc
import threading
import warnings

import pytest
import torch
from contract import contract
from helpers import run_python
from torch_mojo_backend import _C
from torch_mojo_backend.testing import Gate, assert_no_host_wait


@pytest.fixture
def counts():
    """The calls that the engine served inside the test: {name: (queued, waited)}."""
    _C.reset_op_counts()

    def read() -> dict[str, tuple[int, int]]:
        return {name: (entry["queued"], entry["waited"]) for name, entry in _C.op_counts().items()}

    return read


QUEUED = [
    lambda x, i: x.exp(),
    lambda x, i: x.abs(),
    lambda x, i: x.relu(),
    lambda x, i: x.clamp(0, 1),
    lambda x, i: x.sum(),
    lambda x, i: x.max(),
    lambda x, i: x.sort(),
    lambda x, i: x.topk(2),
    lambda x, i: x.cumsum(0),
    lambda x, i: x.prod(),
    lambda x, i: x.std(),
    lambda x, i: x.argmax(1),
    lambda x, i: x.median(1),
    lambda x, i: x[i],
    lambda x, i: x.index_select(0, i),
    lambda x, i: x.gather(1, i[:, None]),
    lambda x, i: x.scatter_add_(1, i[:, None], x.clone()),
    lambda x, i: x.index_put_((i,), x),
    lambda x, i: x.masked_fill_(x > 0, 1),
    lambda x, i: torch.where(x > 0, x, 0),
    lambda x, i: x.flip(0),
    lambda x, i: x.roll(1),
    lambda x, i: x.normal_(),
    lambda x, i: torch.randperm(5, device=x.device),
    lambda x, i: torch.nn.functional.dropout(x),
    lambda x, i: torch.nn.functional.embedding(i, x),
    lambda x, i: torch.nn.functional.cross_entropy(x, i),
    lambda x, i: torch.nn.functional.batch_norm(x, None, None, training=True),
    lambda x, i: torch.nn.functional.conv2d(x[None, None], x[None, None, :2, :2]),
    lambda x, i: torch.nn.functional.interpolate(x[None, None], scale_factor=2),
    lambda x, i: torch.nn.functional.max_pool2d(x[None, None], 2),
    lambda x, i: torch.nn.functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    lambda x, i: torch.baddbmm(x[None], x[None], x[None]),
    lambda x, i: torch.nn.functional.mse_loss(x, x),
    lambda x, i: torch.nn.functional.smooth_l1_loss(x, x, reduction="sum"),
    lambda x, i: torch.linalg.qr(x),
    lambda x, i: torch.linalg.svd(x),
    lambda x, i: torch.fft.fft(x),
    lambda x, i: x.tril(),
    lambda x, i: torch.tril_indices(3, 3, device=x.device),
    lambda x, i: torch.linspace(0, 1, 5, device=x.device),
    lambda x, i: torch.eye(4, device=x.device),
    lambda x, i: torch._foreach_mul([x, x], 2.0),
]


@contract("O-01")
@pytest.mark.parametrize("index", range(len(QUEUED)))
def test_the_call_returns_while_the_stream_is_held(device, index):
    x = torch.randn(4, 4, device=device)
    i = torch.tensor([0, 1, 3, 2], device=device)
    torch.accelerator.synchronize()
    with Gate(), assert_no_host_wait():
        QUEUED[index](x, i)
        assert not torch.accelerator.current_stream().query()


@contract("O-04")
@pytest.mark.parametrize(
    "op",
    [
        lambda x: x.nonzero(),
        lambda x: x.masked_select(x > 0),
        lambda x: x[x > 0],
        lambda x: x.unique(),
        lambda x: x.long().abs().bincount() if x.dim() == 1 else x.flatten().long().abs().bincount(),
        lambda x: torch.equal(x, x),
    ],
)
def test_what_depends_on_data_waits_for_its_own_stream_only(device, stream, op):
    x = torch.randn(4, 4, device=device)
    torch.accelerator.synchronize()
    with Gate(stream):
        with stream:
            y = x * 2
        op(x)  # on the default stream
        assert not stream.query()
    stream.synchronize()
    assert torch.equal(y.cpu(), x.cpu() * 2)


def test_one_op_is_one_task(device, counts):
    x = torch.randn(8, 8, device=device)
    before = _C.stream_position(0, 0)
    for op in (
        lambda: x + x,
        lambda: x.softmax(1),
        lambda: x @ x,
        lambda: x.add_(1),
        lambda: torch.layer_norm(x, (8,)),
    ):
        op()
        assert _C.stream_position(0, 0) == before + 1
        before += 1
    assert counts()["aten::add.Tensor"] == (1, 0)


# --- errors ---


@contract("O-08")
@pytest.mark.parametrize(
    "op,name",
    [
        (lambda x, bad: x.index_select(0, bad), "index_select"),
        (lambda x, bad: x.gather(0, bad[:, None]), "gather"),
        (lambda x, bad: torch.nn.functional.embedding(bad, x), "index_select"),
        (lambda x, bad: x[bad], "index"),
        (lambda x, bad: x.scatter_(0, bad[:, None], 1.0), "scatter"),
        (lambda x, bad: x.index_put_((bad,), x[:2].clone()), "index_put"),
        (lambda x, bad: torch.nn.functional.nll_loss(x, torch.tensor([0, 1, 2, 99], device=x.device)), "nll_loss"),
    ],
)
def test_what_a_kernel_finds_is_raised_later_once_with_cpus_type_and_the_ops_name(device, op, name):
    x, bad = torch.ones(4, 4), torch.tensor([1, 99])
    with pytest.raises((IndexError, RuntimeError)) as on_cpu:
        op(x, bad)
    y, bad = x.to(device), bad.to(device)
    torch.accelerator.synchronize()
    with assert_no_host_wait():
        op(y, bad)
        z = y * 0 + 3  # later work runs
    with pytest.raises(type(on_cpu.value), match=name) as later:
        torch.accelerator.synchronize()
    assert str(on_cpu.value).splitlines()[0] in str(later.value)
    assert "on mojo:0" in str(later.value)
    torch.accelerator.synchronize()
    assert z.tolist() == [[3.0] * 4] * 4


@pytest.mark.parametrize(
    "op",
    [
        lambda x: x + x[:, :3],
        lambda x: x @ x[:3],
        lambda x: x.add_(torch.ones(2, 4, 4, device=x.device)),
        lambda x: torch.cat([x, x[:, :2]]),
        lambda x: x.sum(5),
        lambda x: x.softmax(3),
        lambda x: x.long().add_(1.5),
        lambda x: torch.add(x, x, out=torch.empty(4, 4, dtype=torch.int64, device=x.device)),
        lambda x: torch.mm(x, x, out=torch.empty(4, 4, dtype=torch.int64, device=x.device)),
        lambda x: x.gather(0, torch.zeros(4, 4, device=x.device)),
        lambda x: x.index_select(3, torch.zeros(2, dtype=torch.int64, device=x.device)),
        lambda x: x.masked_fill_(x, 1),
        lambda x: x.topk(9),
        lambda x: x.view(3, 3),
        lambda x: torch.linalg.inv(x[:3]),
        lambda x: torch.nn.functional.conv2d(x[None, None], x[None, None, :2, :2].expand(1, 3, 2, 2)),
        lambda x: torch.nn.functional.layer_norm(x, (5,)),
        lambda x: torch.nn.functional.embedding(x, x),
        lambda x: torch.nn.functional.nll_loss(x, torch.zeros(3, dtype=torch.int64, device=x.device)),
        lambda x: x.expand(2, 4, 4).add_(1),
        lambda x: x[1:].add_(x[:-1]).t().mul_(x[:, 1:]),
        lambda x: x.sqrt_().long().sqrt_(),
        lambda x: x.cumsum(7),
        lambda x: torch.stack([x, x[:2]]),
        lambda x: x.clamp(),
        lambda x: torch.where(x, x, x),
    ],
)
def test_errors_of_arguments_are_raised_at_the_call_with_cores_text(device, op):
    with pytest.raises(Exception) as expected:
        op(torch.ones(4, 4))
    x = torch.ones(4, 4, device=device)
    torch.accelerator.synchronize()
    with Gate(), pytest.raises(type(expected.value)) as actual:
        op(x)
    torch.accelerator.synchronize()
    text, core = str(actual.value), str(expected.value)
    assert text.replace("mojo:0", "cpu").replace("MOJO", "CPU") == core or text.split()[:4] == core.split()[:4]


@pytest.mark.parametrize(
    "op",
    [
        lambda d, c: d + c,
        lambda d, c: d @ c,
        lambda d, c: d.add_(c),
        lambda d, c: torch.cat([d, c]),
        lambda d, c: torch.where(d > 0, d, c),
        lambda d, c: d.index_select(0, torch.tensor([0, 1])),
        lambda d, c: torch.add(d, d, out=torch.empty(2, 2)),
        lambda d, c: torch.nn.functional.linear(d, c),
    ],
)
def test_tensors_on_different_devices(device, op):
    d, c = torch.ones(2, 2, device=device), torch.ones(2, 2)
    with pytest.raises(
        RuntimeError, match="Expected all tensors to be on the same device, but found at least two devices"
    ):
        op(d, c)
    with pytest.raises(RuntimeError, match="mojo:0 and cpu!|cpu and mojo:0!"):
        op(d, c)
    torch.accelerator.synchronize()


def test_tensors_on_two_devices_of_ours(device, other):
    with pytest.raises(RuntimeError, match="found at least two devices, mojo:0 and mojo:1!"):
        torch.ones(2, device=device) + torch.ones(2, device=other)


def test_an_op_without_a_cpu_kernel_says_so(device):
    with pytest.raises(NotImplementedError, match="Could not run 'aten::_cudnn_rnn"):
        torch.ops.aten._cudnn_rnn_flatten_weight([torch.ones(2, device=device)], 1, 1, 0, 1, 0, 1, False, False)


def test_warnings_do_not_come_from_a_worker(device):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.add(torch.ones(3, device=device), 1, out=torch.ones(2, device=device))
        torch.accelerator.synchronize()
    assert len([w for w in seen if "resized" in str(w.message)]) == 1


# --- what a task holds and how it runs ---


@contract("M-03")
def test_a_queued_task_keeps_no_memory_alive(device):
    torch.accelerator.synchronize()
    gc.collect()
    x = torch.ones(1 << 20, device=device)
    before = torch.accelerator.memory_allocated()
    with Gate():
        y = x * 2
        del x
        assert torch.accelerator.memory_allocated() == before, "x is free, y in use"
        del y
        assert torch.accelerator.memory_allocated() == before - (4 << 20)


def test_a_cpu_argument_may_be_changed_and_dropped_after_the_call(device):
    x = torch.arange(6.0, device=device)
    with Gate():
        index = torch.tensor([4, 2])
        y = x[index]
        index.fill_(0)
        del index
        gc.collect()
    assert y.tolist() == [4.0, 2.0]


@pytest.mark.parametrize("threads", [1, 2])
def test_the_callers_number_of_threads_is_honoured(device, threads):
    # A sum in one thread and in several differ in rounding only by how the work is cut.
    before = torch.get_num_threads()
    x = torch.randn(1 << 20)
    torch.set_num_threads(threads)
    try:
        expected = x.sum()
        actual = x.to(device).sum().cpu()
    finally:
        torch.set_num_threads(before)
    assert torch.equal(actual, expected)
    assert torch.get_num_threads() == before


def test_grad_mode_autocast_and_default_dtype_of_the_caller_do_not_leak(device):
    x = torch.ones(4, 4, device=device, requires_grad=True)
    with torch.autocast("mojo", dtype=torch.bfloat16), torch.inference_mode():
        y = torch.ones(4, 4, device=device) + 1
    z = (x * 2).sum()
    z.backward()
    assert x.grad.tolist() == [[2.0] * 4] * 4 and not y.requires_grad


def test_many_shapes_from_many_threads(device):
    failures = []

    def work(seed: int) -> None:
        try:
            generator = torch.Generator().manual_seed(seed)
            with torch.Stream(device):
                for _ in range(200):
                    n, m = (int(v) for v in torch.randint(1, 40, (2,), generator=generator))
                    a, b = torch.randn(n, m, generator=generator), torch.randn(m, generator=generator)
                    out = ((a.to(device) * b.to(device)).softmax(1).sum(0) + 1).cpu()
                    torch.testing.assert_close(out, (a * b).softmax(1).sum(0) + 1)
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_aliases_of_one_storage_are_seen_as_such(device):
    x = torch.arange(8.0, device=device)
    with pytest.raises(
        RuntimeError, match="some elements of the input tensor and the written-to tensor refer to a single"
    ):
        torch.add(x[:-1], 1, out=x[1:])
        torch.accelerator.synchronize()


def test_op_counts_tell_what_waited_and_why(device, counts):
    x = torch.tensor([1.0, 0.0, 2.0], device=device)
    x.nonzero()
    x.nonzero()
    assert counts()["aten::nonzero"] == (0, 2)
    assert "depends on data" in _C.op_counts()["aten::nonzero"]["reason"]


def test_a_device_value_fills_a_cpu_tensor(device):
    value = torch.tensor(2.0, device=device)
    assert torch.zeros(3).fill_(value).tolist() == [2, 2, 2]


@pytest.mark.parametrize("which", range(5))
def test_fused_cells_refuse_tensors_of_several_devices(device, which):
    def arguments(gates: int) -> list[torch.Tensor]:
        x, h, c = (torch.randn(2, 4, device=device) for _ in range(3))
        weights = [torch.randn(gates * 4, 4, device=device) for _ in range(2)]
        biases = [torch.randn(gates * 4, device=device) for _ in range(2)]
        return [h, c, *biases, x, *weights]

    h, c, b_ih, b_hh, x, w_ih, w_hh = (a.cpu() if i == which else a for i, a in enumerate(arguments(4)))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.lstm_cell(x, (h, c), w_ih, w_hh, b_ih, b_hh)
    if which == 1:
        return
    h, c, b_ih, b_hh, x, w_ih, w_hh = (a.cpu() if i == which else a for i, a in enumerate(arguments(3)))
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.gru_cell(x, h, w_ih, w_hh, b_ih, b_hh)


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: torch.add(a, b, out=a),
        lambda a, b: torch.maximum(b, a, out=a),
        lambda a, b: torch.lerp(a, b, 0.5, out=a),
        lambda a, b: torch.addcmul(a, b, b, out=a),
        lambda a, b: torch.where(b > 0, a, b, out=a),
    ],
)
def test_an_output_that_is_an_input_is_not_resized(device, call):
    def texts(place: torch.device | str) -> tuple[str, list[float]]:
        a, b = torch.full((1,), 5.0, device=place), torch.ones(3, device=place)
        with pytest.raises(RuntimeError) as caught:
            call(a, b)
        return str(caught.value).split("\n")[0], a.tolist()

    assert texts(device) == texts("cpu")


def test_an_overlap_is_seen_in_a_long_list(device):
    a = torch.arange(20.0, device=device)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.cat([a[i : i + 1] for i in range(19, -1, -1)], out=a)
        torch.accelerator.synchronize()


def test_the_default_dtype_is_that_of_the_call(device):
    a, b = torch.tensor([1, 2, 3], device=device), torch.tensor([3, 7, 11], device=device)
    calls = [lambda a, b: a / b, lambda a, b: a * 0.1, lambda a, b: a.sqrt(), lambda a, b: torch.where(a > 1, a, 0.1)]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        expected = [call(a.cpu(), b.cpu()) for call in calls]
        with Gate():
            results = [call(a, b) for call in calls]
            torch.set_default_dtype(torch.float32)
    finally:
        torch.set_default_dtype(before)
    for result, value in zip(results, expected, strict=True):
        assert result.dtype == value.dtype and torch.equal(result.cpu(), value)


@pytest.mark.parametrize(
    "call",
    [
        lambda a: torch.add(a, 1, out=torch.empty(2, dtype=torch.float64, device=a.device)),
        lambda a: a.cumsum(0, dtype=torch.float64),
        lambda a: torch.cat([a, a], out=torch.empty(4, dtype=torch.float64, device=a.device)),
        lambda a: torch.bitwise_and(a, a, out=torch.empty(2, dtype=torch.float64, device=a.device)),
    ],
)
def test_a_dtype_that_was_asked_for_is_no_default(device, call):
    a = torch.tensor([2**40 + 1, 2**53 - 1], device=device)
    before = torch.get_default_dtype()
    try:
        with Gate():
            result = call(a)
            torch.set_default_dtype(torch.float64)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(result.cpu(), call(a.cpu()))


@contract("O-08")
def test_an_older_failure_does_not_hide_an_ops_own(device):
    index, negative = torch.tensor([7], device=device), torch.tensor([-1], device=device)
    torch.zeros(3, device=device).index_select(0, index)  # fails when it runs
    with pytest.raises(RuntimeError, match="non-negative"):
        negative.bincount()  # waits for its own result
    with pytest.raises(IndexError):
        torch.accelerator.synchronize()

    # In place: what the op did is there, then the older failure is raised.
    out = torch.empty(0, dtype=torch.int64, device=device)
    torch.zeros(3, device=device).index_select(0, index)
    with pytest.raises(IndexError):
        torch.nonzero(torch.tensor([0, 1, 1], device=device), out=out)
    assert out.tolist() == [[1], [2]]


def test_ranges_need_no_compiler():
    done = run_python(
        """
        import sys
        x = torch.arange(10, device="mojo")
        y = torch.arange(0, 1, 0.25, device="mojo")
        assert x.tolist() == list(range(10)) and y.tolist() == [0, 0.25, 0.5, 0.75]
        assert "torch._dynamo" not in sys.modules
        """
    )
    assert not done.stderr


RANGES = [(5,), (0,), (2, 7), (2, 2), (5, 0, -2), (0.5, 3), (0, 1 << 40, 1 << 38), (True,)]


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8])
@pytest.mark.parametrize("bounds", RANGES, ids=str)
def test_ranges_are_those_of_cpu(device, bounds, dtype):
    def outcome(place: torch.device | str) -> object:
        try:
            result = torch.arange(*bounds, dtype=dtype, device=place)
        except (RuntimeError, ValueError) as error:
            return type(error), str(error).split("\n")[0]
        return result.dtype, result.tolist()

    assert outcome(device) == outcome("cpu")


def test_a_step_that_is_no_integer(device):
    assert torch.equal(torch.arange(1, 2, 0.3, device=device).cpu(), torch.arange(1, 2, 0.3))
    with pytest.raises(ValueError, match="step must be nonzero"):  # CPU's division by zero before torch 2.13
        torch.arange(1, 2, 0.3, dtype=torch.int64, device=device)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.arange(0, 5, 0, device=d),
        lambda d: torch.arange(0, 5, -1, device=d),
        lambda d: torch.arange(0, float("inf"), device=d),
        lambda d: torch.arange(0, float("nan"), device=d),
        lambda d: torch.arange(5, dtype=torch.complex64, device=d),
        lambda d: torch.arange(5, dtype=torch.bool, device=d),
    ],
)
def test_ranges_refuse_what_cpu_refuses(device, call):
    def outcome(place: torch.device | str) -> object:
        try:
            return call(place).tolist()
        except (RuntimeError, ValueError, NotImplementedError) as error:
            return type(error), str(error).split("\n")[0]

    with Gate():
        ours = outcome(device)
    assert ours == outcome("cpu")


def test_ranges_go_where_the_output_is(device):
    for make in (lambda d: torch.empty(10, device=d)[::2], lambda d: torch.empty(0, device=d)):
        ours, theirs = make(device), make("cpu")
        assert torch.equal(torch.arange(1, 6, out=ours).cpu(), torch.arange(1, 6, out=theirs))
    out = torch.empty(3, device=device)
    with pytest.warns(UserWarning, match="does not match the computed number of elements"):
        torch.arange(5, out=out)
    assert out.tolist() == [0, 1, 2, 3, 4]


ARGUMENTS_THAT_CPU_REFUSES = [
    lambda d: torch.empty(0, device=d).max(),
    lambda d: torch.empty(0, 3, device=d).min(),
    lambda d: torch.ones(4, device=d).addr_(torch.ones(4, device=d), torch.ones(4, device=d)),
    lambda d: torch.ones(2, 2, device=d) @ torch.ones(2, 2, device=d).half(),
    lambda d: torch.bmm(torch.ones(1, 2, 2, device=d), torch.ones(1, 2, 2, device=d).half()),
    lambda d: torch.mv(torch.ones(2, 2, device=d), torch.ones(2, device=d).half()),
    lambda d: torch.nn.functional.linear(torch.ones(2, 2, device=d), torch.ones(2, 2, device=d).bfloat16()),
    lambda d: torch.nn.functional.conv2d(torch.ones(1, 1, 3, 3, device=d), torch.ones(1, 1, 1, 1, device=d).half()),
    lambda d: torch.ones(2, 2, device=d).bool() @ torch.ones(2, 2, device=d).bool(),
    lambda d: torch.ones(2, device=d).long().softmax(0),
    lambda d: torch.ones(2, device=d) & torch.ones(2, device=d),
    lambda d: torch.nn.functional.gelu(torch.ones(2, device=d), approximate="x"),
    lambda d: torch.ones(2, device=d).div_(torch.ones(2, device=d), rounding_mode="foo"),
    lambda d: torch.ones(2, device=d).add_(torch.ones(2, device=d), alpha=1j),
    lambda d: torch.ones(2, device=d).add_(torch.ones(2, device=d), alpha=True),
    lambda d: torch.ones(2, device=d).polygamma_(-1),
    lambda d: torch.randint(5, 1, (2,), device=d),
    lambda d: torch.ones(2, device=d).uniform_(1, 0),
    lambda d: torch.ones(2, device=d).normal_(0, -1),
    lambda d: torch.ones(2, device=d).exponential_(-1),
    lambda d: torch.ones(2, device=d).geometric_(2),
    lambda d: torch.ones(2, device=d).bernoulli_(2),
    lambda d: torch.ones(2, device=d).long().uniform_(),
    lambda d: torch.ones(1, device=d).expand(3).uniform_(),
    lambda d: torch.native_dropout(torch.ones(3, device=d), 2.0, True),
    lambda d: torch.native_dropout(torch.ones(3, device=d).long(), 0.5, True),
]


@pytest.mark.parametrize("call", ARGUMENTS_THAT_CPU_REFUSES)
def test_arguments_that_cpu_refuses_are_refused(device, call):
    def outcome(place: torch.device | str) -> tuple[type, str]:
        with pytest.raises((RuntimeError, NotImplementedError, IndexError, ValueError)) as caught:
            call(place)
            if place != "cpu" and call in ARGUMENTS_THAT_CPU_REFUSES[:2]:
                torch.accelerator.synchronize()  # a full reduction's kernel says it
        return caught.type, str(caught.value).split("\n")[0].split(" (while running")[0]

    assert outcome(device) == outcome("cpu")
    torch.accelerator.synchronize()  # nothing is left on the stream


def test_checking_arguments_draws_no_number(device):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    for _ in range(3):
        torch.empty(5, device=device).uniform_(1, 2).normal_().bernoulli_(0.5)
    torch.nn.functional.dropout(torch.ones(7, device=device))
    assert torch.equal(torch.rand(4), expected)


def test_checking_arguments_gives_no_warning(device, recwarn):
    torch.add(torch.ones(2, 3, device=device), 1, out=torch.empty(0, device=device))
    torch.nn.functional.mse_loss(torch.ones(2, 3, device=device), torch.ones(2, 3, device=device))
    assert not recwarn.list


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.tensor([1 + 2j, -3j], device=d).conj_physical_(),
        lambda d: torch.kaiser_window(7, device=d),
        lambda d: torch.kaiser_window(7, periodic=False, device=d),
        lambda d: torch.kaiser_window(7, True, 5.0, device=d),
    ],
)
def test_kernels_for_any_device_that_are_cpus(device, call):
    ours = call(device)
    assert ours.device.type == "mojo" and torch.equal(ours.cpu(), call("cpu"))


def test_a_kernel_from_a_prompt_runs_on_the_calling_thread():
    # Python says "<stdin>" for the file of such a kernel.
    done = run_python(
        """
        import threading
        code = '''
        library = torch.library.Library("prompt", "DEF")
        library.define("thread(Tensor x) -> Tensor")
        def thread(x):
            seen.append(threading.current_thread())
            return x + 1
        library.impl("thread", thread, "CPU")
        library.impl("thread", lambda x: torch.empty_like(x), "Meta")
        '''
        seen = []
        exec(compile(__import__("textwrap").dedent(code), "<stdin>", "exec"))
        y = torch.ops.prompt.thread(torch.ones(2, device="mojo"))
        assert y.device.type == "mojo" and y.tolist() == [2, 2]
        assert seen == [threading.main_thread()], seen
        """
    )
    assert not done.stderr


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.empty(0, dtype=torch.int64, device=d) % 0,
        lambda d: torch.div(torch.empty(0, dtype=torch.int64, device=d), 0, rounding_mode="trunc"),
        lambda d: torch.empty(0, dtype=torch.int64, device=d).normal_(),
        lambda d: torch.empty(0, 3, device=d).bool() @ torch.empty(3, 0, device=d).bool(),
        lambda d: torch.empty(2, 0, device=d).bool() @ torch.empty(0, 2, device=d).bool(),
        lambda d: torch.empty(0, dtype=torch.int64, device=d).softmax(0),
        lambda d: torch.native_dropout(torch.empty(0, device=d), 2.0, True)[0],
        lambda d: torch.nn.functional.gelu(torch.empty(0, device=d)),
    ],
)
def test_nothing_is_refused_that_cpu_takes_of_no_elements(device, call):
    ours, theirs = call(device), call("cpu")
    assert ours.dtype == theirs.dtype and torch.equal(ours.cpu(), theirs)


def test_a_profile_shows_each_op_once(device):
    x = torch.ones(3, 5, device=device)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(5):
            x.normal_()
        x.add(x[0])
        torch.accelerator.synchronize()
    on_caller = [e.name for e in profile.events() if e.thread == profile.events()[0].thread]
    assert on_caller.count("aten::normal_") == 5 and on_caller.count("aten::add") == 1


def test_an_output_that_the_kernel_leaves_lazily_conjugated(device):
    """CPU's lu_solve sets the conj bit of its output; the caller's tensor has none."""
    torch.manual_seed(1)
    matrix, right = torch.randn(4, 4, dtype=torch.complex64), torch.randn(4, 4, dtype=torch.complex64)
    lu, pivots = torch.linalg.lu_factor(matrix)
    for left in (True, False):
        for adjoint in (True, False):
            expected = torch.linalg.lu_solve(lu, pivots, right, left=left, adjoint=adjoint)
            actual = torch.linalg.lu_solve(
                lu.to(device), pivots.to(device), right.to(device), left=left, adjoint=adjoint
            )
            assert torch.equal(actual.cpu(), expected.resolve_conj()), (left, adjoint)


def test_values_for_a_mask_that_is_not_known_at_the_call(device, stream):
    x, mask = torch.arange(6.0, device=device), torch.tensor([True, False, True, False, True, False], device=device)
    torch.accelerator.synchronize()
    with stream, Gate(), assert_no_host_wait():
        x[mask] = torch.tensor([10.0, 20, 30], device=device)
    stream.synchronize()
    assert x.tolist() == [10, 1, 20, 3, 30, 5]
    with stream:
        x[mask] = torch.ones(2, device=device)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        stream.synchronize()


def test_floor_division_in_place_and_into_an_output(device):
    x = torch.tensor([5, 9, -7], device=device)
    out = torch.empty(0, dtype=torch.int64, device=device)
    torch.floor_divide(x, 4, out=out)
    assert out.tolist() == [1, 2, -2]
    assert x.floor_divide_(4).tolist() == [1, 2, -2]
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        x.floor_divide_(torch.ones(2, 3, device=device))
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.floor_divide_(2.5)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.gather(x, 0, torch.zeros(3, dtype=torch.int64, device=x.device), out=x),
        lambda x: torch.cat([x, x], out=x),
        lambda x: torch.cat([x[:1], x[1:]], out=x[:3]),
        lambda x: torch.index_select(x, 0, torch.zeros(3, dtype=torch.int64, device=x.device), out=x),
        lambda x: torch.index_select(
            x, 0, torch.zeros(3, dtype=torch.int64, device=x.device), out=torch.zeros(1, device=x.device).expand(3)
        ),
        lambda x: torch.take(x, torch.zeros(3, dtype=torch.int64, device=x.device), out=x),
        lambda x: torch.add(x[1:], 1, out=x[:-1]),
    ],
)
def test_an_output_that_overlaps_raises_at_the_call(device, call):
    with pytest.raises(RuntimeError) as expected:
        call(torch.arange(3.0))
    x = torch.arange(3.0, device=device)
    with pytest.raises(RuntimeError) as found:
        call(x)
    assert str(expected.value).splitlines()[0] in str(found.value)
    torch.accelerator.synchronize()
    assert x.tolist() == [0, 1, 2]


def test_batch_norm_of_an_input_with_gaps(device):
    """CPU's `.out` kernel gives other values than the op itself here."""
    torch.manual_seed(0)
    x = torch.randn(2, 6, 4).transpose(1, 2)
    on_cpu, ours = torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4).to(device)
    moved = torch.empty_strided(x.size(), x.stride(), device=device).copy_(x)
    assert torch.equal(ours(moved).cpu(), on_cpu(x))
    assert torch.equal(ours.running_mean.cpu(), on_cpu.running_mean)
    assert torch.equal(ours.running_var.cpu(), on_cpu.running_var)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, m: x.index_put_((m,), x.new_ones(1, dtype=torch.int64), accumulate=True),
        lambda x, m: x.index_put_((m[:5],), x.new_ones(1)),
        lambda x, m: x.index_put_((m, m[0]), x.new_ones(1)),
        lambda x, m: torch.mode(x.new_empty(2, 0), -1, out=(x.new_empty(0), x.new_empty(0, dtype=torch.int64))),
        lambda x, m: torch.mode(x, -1, out=(x[:1], x.new_empty(0, dtype=torch.int64))),
        lambda x, m: x.index_select(0, x[0]),
        lambda x, m: torch.repeat_interleave(x.new_ones(2), output_size=3),
    ],
)
def test_wrong_arguments_that_our_own_rules_see_raise_at_the_call(device, call):
    x = torch.arange(36.0).view(6, 6)
    with pytest.raises((IndexError, RuntimeError)) as expected:
        call(x.clone(), x > 3)
    y = x.to(device)
    mask = y > 3
    with pytest.raises(type(expected.value)):
        call(y, mask)
    torch.accelerator.synchronize()


def test_a_rule_is_not_taken_for_another_librarys_op(device):
    library = torch._C._dispatch_library("FRAGMENT", "mojo_rules", "")
    for name in ("flip", "max", "isnan"):
        library.def_(f"{name}(Tensor x) -> Tensor")
        library.impl_t_t(name, "CPU", "impl.cpp")
    x = torch.randn(3, 4, device=device)
    for name in ("flip", "max", "isnan"):
        result = getattr(torch.ops.mojo_rules, name)(x)
        torch.accelerator.synchronize()
        assert result.shape == x.shape and result.dtype == x.dtype
