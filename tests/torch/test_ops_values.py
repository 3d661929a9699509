"""Values of ops on the device against the same ops on the CPU: the same kernels, so the same values."""

import copy

import pytest
import torch
import torch.nn.functional as F
from contract import contract

GENERATOR = torch.Generator().manual_seed(20)


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(*shape, dtype=dtype, generator=GENERATOR)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=GENERATOR).bool()
    return torch.randint(-9, 9, shape, dtype=dtype, generator=GENERATOR)


def moved(value, device):
    if isinstance(value, torch.Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        return type(value)(moved(v, device) for v in value)
    return value


def check_equal(actual, expected):
    """Equal to the last bit, strides, dtype and nan included; `expected` is on the CPU."""
    if isinstance(expected, torch.Tensor):
        assert actual.device.type == "mojo"
        assert actual.dtype == expected.dtype
        assert actual.shape == expected.shape
        assert actual.stride() == expected.stride() or actual.numel() < 2
        torch.testing.assert_close(actual.cpu(), expected, rtol=1e-6, atol=1e-6, equal_nan=True)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            check_equal(a, e)
    else:
        assert actual == expected


def check(device, op, *args):
    """`op` on the device equals `op` on the CPU, results and what it does to its arguments."""
    theirs = copy.deepcopy(args)
    ours = moved(args, device)
    check_equal(op(*ours), op(*theirs))
    for a, e in zip(ours, theirs, strict=True):
        if isinstance(e, torch.Tensor):
            torch.testing.assert_close(a.detach().cpu(), e.detach(), rtol=1e-6, atol=1e-6, equal_nan=True)


UNARY = [
    "abs",
    "neg",
    "exp",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "relu",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "frac",
    "reciprocal",
    "square",
    "erf",
    "erfinv",
    "lgamma",
    "digamma",
    "isnan",
    "isfinite",
    "isinf",
    "logical_not",
    "bitwise_not",
    "expm1",
    "log2",
    "atan",
    "asinh",
    "sgn",
    "angle",
    "exp2",
    "sinc",
    "nan_to_num",
    "positive",
    "signbit",
    "deg2rad",
    "i0",
    "logit",
]


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_pointwise_of_one(device, name, dtype):
    x = rand(3, 5, dtype=dtype)
    op = getattr(torch, name)
    try:
        op(x)
    except (RuntimeError, TypeError) as error:
        with pytest.raises(type(error)):
            op(x.to(device))
            torch.accelerator.synchronize()
        return
    check(device, op, x)


BINARY = [
    "add",
    "sub",
    "mul",
    "true_divide",
    "floor_divide",
    "fmod",
    "remainder",
    "maximum",
    "minimum",
    "atan2",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "hypot",
    "copysign",
    "nextafter",
    "fmax",
    "fmin",
    "heaviside",
    "xlogy",
    "logaddexp",
    "pow",
    "float_power",
    "ldexp",
]


@pytest.mark.parametrize("name", BINARY)
def test_pointwise_of_two(device, name):
    op = getattr(torch, name)
    a, b = rand(3, 1, 5).abs() + 0.5, rand(4, 5).abs() + 0.5
    check(device, op, a, b)
    check(device, op, a, torch.tensor(2.5))
    check(device, op, a.transpose(0, 2), b[0, :1])


@pytest.mark.parametrize(
    "pair",
    [
        (torch.int32, torch.float32),
        (torch.float16, torch.float32),
        (torch.uint8, torch.int64),
        (torch.bool, torch.int32),
        (torch.float32, torch.complex64),
    ],
    ids=str,
)
def test_type_promotion(device, pair):
    a, b = rand(4, 4).to(pair[0]), rand(4, 4).to(pair[1])
    for op in (torch.add, torch.mul, torch.true_divide):
        check(device, op, a, b)
        check(device, op, a, 3)
        check(device, op, 2.5, b)


REDUCTIONS = [
    lambda x: x.sum(),
    lambda x: x.sum(1),
    lambda x: x.sum((0, 2), keepdim=True),
    lambda x: x.mean(0),
    lambda x: x.prod(1),
    lambda x: x.prod(),
    lambda x: x.std(1),
    lambda x: torch.var_mean(x, (0, 1)),
    lambda x: x.amax(1),
    lambda x: x.max(),
    lambda x: x.max(1),
    lambda x: x.min(2, keepdim=True),
    lambda x: x.argmax(),
    lambda x: x.argmin(1),
    lambda x: torch.aminmax(x),
    lambda x: x.norm(),
    lambda x: x.norm(dim=1),
    lambda x: torch.linalg.vector_norm(x, 3, dim=(0, 1)),
    lambda x: x.logsumexp(1),
    lambda x: x.any(1),
    lambda x: x.all(),
    lambda x: x.median(),
    lambda x: x.median(1),
    lambda x: x.mode(1),
    lambda x: x.kthvalue(2, 1),
    lambda x: x.nansum(),
    lambda x: x.count_nonzero(1),
    lambda x: x.cumsum(1),
    lambda x: x.cumprod(0),
    lambda x: x.cummax(1),
    lambda x: x.logcumsumexp(1),
    lambda x: x.sort(1),
    lambda x: x.sort(dim=0, descending=True, stable=True),
    lambda x: x.argsort(2),
    lambda x: x.topk(2),
    lambda x: x.quantile(0.3, 1),
    lambda x: x.softmax(1),
    lambda x: x.log_softmax(-1),
    lambda x: x.renorm(2, 0, 1.0),
    lambda x: x.diff(),
    lambda x: torch.histc(x, 5, -2, 2),
    lambda x: torch.cdist(x, x),
    lambda x: torch.trapezoid(x),
]


@pytest.mark.parametrize("index", range(len(REDUCTIONS)))
def test_reductions_and_scans(device, index):
    check(device, REDUCTIONS[index], rand(4, 3, 5))
    check(device, REDUCTIONS[index], rand(5, 3, 8).transpose(0, 2)[::2])


MATRICES = [
    (lambda a, b: a @ b, (4, 6), (6, 3)),
    (lambda a, b: a @ b, (2, 4, 6), (6, 3)),
    (lambda a, b: a @ b, (2, 4, 6), (2, 6, 3)),
    (lambda a, b: a.t() @ b, (6, 4), (6, 3)),
    (lambda a, b: a @ b, (6,), (6,)),
    (lambda a, b: a @ b, (4, 6), (6,)),
    (lambda a, b: torch.addmm(b[:, :3], a, b[:, :3]), (4, 4), (4, 6)),
    (lambda a, b: torch.einsum("bij,bjk->ik", a, b), (2, 4, 6), (2, 6, 3)),
    (lambda a, b: torch.outer(a, b), (4,), (5,)),
    (lambda a, b: torch.kron(a, b), (2, 2), (3, 3)),
    (lambda a, b: F.linear(a, b, b[:, 0]), (2, 5, 6), (3, 6)),
    (lambda a, b: torch.baddbmm(a @ b, a, b, beta=0.5, alpha=2), (2, 4, 6), (2, 6, 3)),
    (lambda a, b: torch.linalg.solve(a, b), (4, 4), (4, 2)),
    (lambda a, b: torch.linalg.inv(a) @ b, (4, 4), (4, 2)),
    (lambda a, b: torch.linalg.qr(a).R.abs(), (5, 4), (1,)),
    (lambda a, b: torch.linalg.svdvals(a), (5, 4), (1,)),
    (lambda a, b: torch.linalg.eigvalsh(a @ a.mT), (4, 4), (1,)),
    (lambda a, b: torch.linalg.cholesky(a @ a.mT + 8 * torch.eye(4, device=a.device)), (4, 4), (1,)),
    (lambda a, b: torch.linalg.det(a), (4, 4), (1,)),
    (lambda a, b: torch.linalg.slogdet(a), (2, 4, 4), (1,)),
    (lambda a, b: torch.linalg.lstsq(a, b).solution.contiguous(), (6, 4), (6, 2)),
    (lambda a, b: torch.linalg.matrix_exp(a), (4, 4), (1,)),
    (lambda a, b: torch.linalg.pinv(a), (5, 4), (1,)),
    (lambda a, b: torch.triu(a) + torch.tril(a, -1), (4, 5), (1,)),
    (lambda a, b: torch.trace(a), (4, 4), (1,)),
    (lambda a, b: torch.fft.rfft(a), (4, 8), (1,)),
    (lambda a, b: torch.fft.ifft2(torch.fft.fft2(a)), (4, 8), (1,)),
]


@pytest.mark.parametrize("index", range(len(MATRICES)))
def test_matrices(device, index):
    op, a, b = MATRICES[index]
    x, y = rand(*a, dtype=torch.float64), rand(*b, dtype=torch.float64)
    check(device, op, x, y)


INDEXING = [
    lambda x, i, m: x[i],
    lambda x, i, m: x[:, i],
    lambda x, i, m: x[i, i.flip(0)],
    lambda x, i, m: x[:, None, i],
    lambda x, i, m: x[m],
    lambda x, i, m: x[..., 1:3],
    lambda x, i, m: x.index_select(0, i),
    lambda x, i, m: x.gather(0, i[:, None].expand(-1, 4)),
    lambda x, i, m: x.take(i),
    lambda x, i, m: x.take_along_dim(i[:, None], 0),
    lambda x, i, m: x.masked_select(m),
    lambda x, i, m: m.nonzero(),
    lambda x, i, m: torch.argwhere(x > 0),
    lambda x, i, m: torch.where(m, x, -x),
    lambda x, i, m: x.masked_fill(m, 7),
    lambda x, i, m: x.scatter(0, i[:, None].expand(-1, 4), x[: len(i)]),
    lambda x, i, m: x.scatter_add(0, i[:, None].expand(-1, 4), x[: len(i)]),
    lambda x, i, m: x.scatter_reduce(0, i[:, None].expand(-1, 4), x[: len(i)], "amax"),
    lambda x, i, m: x.index_add(0, i, x[: len(i)]),
    lambda x, i, m: x.index_copy(0, i.unique(), x[: len(i.unique())]),
    lambda x, i, m: x.index_fill(0, i, 3),
    lambda x, i, m: x.clone().index_put_((i,), x[i] * 2),
    lambda x, i, m: x.clone().index_put_((i,), torch.tensor(1.0, device=x.device), accumulate=True),
    lambda x, i, m: x.clone().masked_scatter_(m, x.flatten()),
    lambda x, i, m: i.unique(return_inverse=True, return_counts=True),
    lambda x, i, m: torch.unique_consecutive(i),
    lambda x, i, m: i.bincount(),
    lambda x, i, m: torch.searchsorted(x[0].sort()[0], x),
    lambda x, i, m: torch.bucketize(x, x[0].sort()[0]),
    lambda x, i, m: torch.isin(i, i[:2]),
    lambda x, i, m: x.repeat_interleave(2, 0),
    lambda x, i, m: torch.repeat_interleave(x[:4], i, 0),
    lambda x, i, m: x.roll(1, 0),
    lambda x, i, m: x.flip(1),
    lambda x, i, m: torch.cat([x, x[:1]]),
    lambda x, i, m: torch.stack([x, x], 1),
    lambda x, i, m: x.tile(2, 2),
    lambda x, i, m: x.unfold(0, 2, 1).contiguous(),
    lambda x, i, m: F.pad(x[None], (1, 1, 2, 0), mode="constant", value=2),
    lambda x, i, m: F.pad(x[None], (1, 1, 2, 1), mode="reflect"),
    lambda x, i, m: F.one_hot(i),
    lambda x, i, m: F.embedding(i, x),
    lambda x, i, m: F.embedding_bag(i, x, torch.tensor([0, 2], device=x.device)),
    lambda x, i, m: x.diagonal().clone(),
    lambda x, i, m: torch.meshgrid(i, i, indexing="ij")[0].clone(),
    lambda x, i, m: torch.tril_indices(4, 4, device=x.device),
    lambda x, i, m: torch.eye(3, device=x.device),
    lambda x, i, m: torch.linspace(0, 1, 7, device=x.device),
    lambda x, i, m: torch.arange(2, 11, 3, device=x.device),
    lambda x, i, m: torch.full((2, 3), 4.5, device=x.device),
    lambda x, i, m: x.split(2)[1].clone(),
    lambda x, i, m: torch.equal(x, x.clone()),
    lambda x, i, m: torch.allclose(x, x + 1e-9),
]


@pytest.mark.parametrize("index", range(len(INDEXING)))
def test_indexing_and_shapes(device, index):
    check(device, INDEXING[index], rand(5, 4), torch.tensor([0, 3, 1, 3]), rand(5, 4, dtype=torch.bool))


def test_an_index_may_be_on_the_cpu(device):
    x = rand(5, 4)
    i, mask = torch.tensor([0, 3]), torch.tensor([True, False, True, True, False])
    y = x.to(device)
    check_equal(y[i], x[i])
    check_equal(y[mask], x[mask])
    y[i] = 1.5
    x[i] = 1.5
    check_equal(y, x)


def test_the_value_of_a_cpu_scalar_is_taken_at_the_call(device):
    from torch_mojo_backend.testing import Gate

    x, scalar = torch.ones(4, device=device), torch.tensor(2.0)
    with Gate():
        y = x * scalar
        scalar.fill_(100)
    assert y.tolist() == [2.0] * 4


IN_PLACE = [
    lambda x, y: x.add_(y),
    lambda x, y: x.mul_(2).sub_(y, alpha=3),
    lambda x, y: x.div_(y.abs() + 1),
    lambda x, y: x.addcmul_(y, y, value=0.5),
    lambda x, y: x.lerp_(y, 0.3),
    lambda x, y: x.clamp_(-0.5, 0.5),
    lambda x, y: x.relu_().neg_(),
    lambda x, y: x.copy_(y.t()[:4].t()[..., :6] if False else y),
    lambda x, y: x.t().add_(y.t()),
    lambda x, y: x[1:].mul_(y[1:]),
    lambda x, y: x[:, ::2].fill_(3),
    lambda x, y: x.zero_(),
    lambda x, y: x.masked_fill_(y > 0, -1),
    lambda x, y: x.exp_().log_(),
    lambda x, y: x.cumsum_(1),
    lambda x, y: x.triu_(),
    lambda x, y: x.addmm_(y, y.t() @ y),
    lambda x, y: x.transpose_(0, 1),
    lambda x, y: x.floor_(),
    lambda x, y: x.sigmoid_().bernoulli_(0.0),
    lambda x, y: x.eq_(y),
]


@pytest.mark.parametrize("index", range(len(IN_PLACE)))
def test_in_place(device, index):
    check(device, IN_PLACE[index], rand(4, 6), rand(4, 6))


OUT = [
    (torch.add, 2),
    (torch.mul, 2),
    (torch.abs, 1),
    (torch.exp, 1),
    (torch.cumsum, 1),
    (torch.softmax, 1),
    (torch.matmul, 2),
    (torch.sum, 1),
    (torch.cat, 0),
]


@pytest.mark.parametrize("op,count", OUT, ids=lambda v: getattr(v, "__name__", v))
def test_out(device, op, count):
    a, b = rand(4, 4), rand(4, 4)
    args = {0: ([a, b],), 1: (a,), 2: (a, b)}[count]
    extra = (1,) if op in (torch.cumsum, torch.softmax, torch.sum) else ()
    expected = op(*args, *extra)
    for out in (torch.empty(0, device=device), torch.zeros_like(expected, device=device)):
        result = op(*moved(args, device), *extra, out=out)
        assert result is out
        check_equal(out, expected)
    strided = torch.zeros(*expected.shape[::-1], device=device).permute(*range(expected.dim())[::-1])
    op(*moved(args, device), *extra, out=strided)
    torch.testing.assert_close(strided.cpu(), expected)


def test_out_of_the_wrong_size_is_resized_with_cores_warning(device):
    a = torch.ones(3, 4, device=device)
    out = torch.empty(7, device=device)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.add(a, a, out=out)
    assert out.shape == (3, 4) and out.tolist() == [[2.0] * 4] * 3
    out = torch.empty(2, 2, device=device)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.nonzero(a, out=torch.empty(2, 2, device=device, dtype=torch.int64))


LAYERS = [
    lambda: (torch.nn.Linear(8, 4), rand(5, 8)),
    lambda: (torch.nn.Conv2d(4, 6, 3, padding=1), rand(2, 4, 8, 8)),
    lambda: (torch.nn.Conv2d(4, 8, 3, stride=2, groups=2, bias=False), rand(2, 4, 9, 9)),
    lambda: (torch.nn.Conv2d(4, 4, 3, dilation=2), rand(2, 4, 9, 9).contiguous(memory_format=torch.channels_last)),
    lambda: (torch.nn.Conv1d(4, 6, 3), rand(2, 4, 10)),
    lambda: (torch.nn.Conv3d(2, 3, 2), rand(1, 2, 4, 4, 4)),
    lambda: (torch.nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), rand(2, 4, 5, 5)),
    lambda: (torch.nn.BatchNorm2d(4), rand(3, 4, 5, 5)),
    lambda: (torch.nn.BatchNorm1d(4).eval(), rand(3, 4)),
    lambda: (torch.nn.LayerNorm(8), rand(3, 8)),
    lambda: (torch.nn.GroupNorm(2, 4), rand(3, 4, 5)),
    lambda: (torch.nn.InstanceNorm2d(4, affine=True), rand(3, 4, 5, 5)),
    lambda: (torch.nn.RMSNorm(8), rand(3, 8)),
    lambda: (torch.nn.MaxPool2d(2), rand(2, 3, 6, 6)),
    lambda: (torch.nn.AvgPool2d(2, padding=1), rand(2, 3, 6, 6)),
    lambda: (torch.nn.AdaptiveAvgPool2d(2), rand(2, 3, 6, 6)),
    lambda: (torch.nn.AdaptiveMaxPool2d(2), rand(2, 3, 6, 6)),
    lambda: (torch.nn.Upsample(scale_factor=2, mode="bilinear"), rand(2, 3, 4, 4)),
    lambda: (torch.nn.Upsample(scale_factor=2), rand(2, 3, 4, 4)),
    lambda: (torch.nn.GELU(), rand(4, 5)),
    lambda: (torch.nn.SiLU(), rand(4, 5)),
    lambda: (torch.nn.PReLU(), rand(4, 5)),
    lambda: (torch.nn.ELU(), rand(4, 5)),
    lambda: (torch.nn.GLU(), rand(4, 6)),
    lambda: (torch.nn.Softplus(), rand(4, 6)),
    lambda: (torch.nn.Hardswish(), rand(4, 6)),
    lambda: (torch.nn.LogSoftmax(1), rand(4, 6)),
    lambda: (torch.nn.MultiheadAttention(8, 2, batch_first=True), (rand(2, 5, 8),) * 3),
    lambda: (torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), rand(2, 5, 8)),
    lambda: (torch.nn.LSTM(4, 6, batch_first=True), rand(2, 5, 4)),
    lambda: (torch.nn.GRU(4, 6), rand(5, 2, 4)),
    lambda: (torch.nn.RNN(4, 6), rand(5, 2, 4)),
    lambda: (torch.nn.Bilinear(3, 4, 5), (rand(2, 3), rand(2, 4))),
    lambda: (torch.nn.PixelShuffle(2), rand(1, 4, 3, 3)),
    lambda: (torch.nn.Unfold(2), rand(1, 2, 4, 4)),
    lambda: (torch.nn.CosineSimilarity(), (rand(3, 4), rand(3, 4))),
]


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_of(v)]
    return []


@pytest.mark.parametrize("index", range(len(LAYERS)))
def test_layers_forward_and_backward(device, index):
    module, inputs = LAYERS[index]()
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    results = []
    for place in (torch.device("cpu"), device):
        model = copy.deepcopy(module).to(place)
        args = [x.detach().to(place).requires_grad_() for x in inputs]
        outputs = tensors_of(model(*args))
        sum((o * torch.arange(o.numel(), device=place).view(o.shape)).sum() for o in outputs).backward()
        results.append([outputs, [a.grad for a in args], [p.grad for p in model.parameters()], list(model.buffers())])
    for expected, actual in zip(*results, strict=True):
        for e, a in zip(expected, actual, strict=True):
            torch.testing.assert_close(a.detach().cpu(), e.detach(), rtol=1e-4, atol=1e-3)


LOSSES = [
    lambda x, t: F.cross_entropy(x, t),
    lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction="none"),
    lambda x, t: F.nll_loss(x.log_softmax(1), t, weight=torch.arange(1.0, 6.0, device=x.device)),
    lambda x, t: F.mse_loss(x, x.detach() * 2),
    lambda x, t: F.l1_loss(x, x.detach().flip(0)),
    lambda x, t: F.smooth_l1_loss(x, x.detach().flip(0)),
    lambda x, t: F.huber_loss(x, x.detach().flip(0)),
    lambda x, t: F.binary_cross_entropy_with_logits(x, (x.detach() > 0).float()),
    lambda x, t: F.binary_cross_entropy(x.sigmoid(), (x.detach() > 0).float()),
    lambda x, t: F.kl_div(x.log_softmax(1), x.detach().softmax(1), reduction="batchmean"),
    lambda x, t: F.multi_margin_loss(x, t),
    lambda x, t: F.triplet_margin_loss(x, x.detach().flip(0), x.detach() * 2),
    lambda x, t: F.cosine_embedding_loss(x, x.detach().flip(0), torch.ones(4, device=x.device)),
    lambda x, t: F.gaussian_nll_loss(x, x.detach().flip(0), x.detach().abs() + 1),
    lambda x, t: F.ctc_loss(x.log_softmax(1)[:, None], t[None, :2] + 1, torch.tensor([4]), torch.tensor([2])),
]


@pytest.mark.parametrize("index", range(len(LOSSES)))
def test_losses_forward_and_backward(device, index):
    x, target = rand(4, 5), torch.tensor([1, 0, 3, 2])
    results = []
    for place in (torch.device("cpu"), device):
        input = x.detach().to(place).requires_grad_()
        loss = LOSSES[index](input, target.to(place))
        loss.sum().backward()
        results.append((loss, input.grad))
    for e, a in zip(*results, strict=True):
        torch.testing.assert_close(a.detach().cpu(), e.detach(), rtol=1e-5, atol=1e-6)


def test_foreach(device):
    xs, ys = [rand(3), rand(2, 2), rand(5)], [rand(3), rand(2, 2), rand(5)]
    for op in (
        lambda a, b: torch._foreach_add(a, b, alpha=2),
        lambda a, b: torch._foreach_mul(a, 3.0),
        lambda a, b: torch._foreach_addcdiv(a, b, [y.abs() + 1 for y in b], value=0.5),
        lambda a, b: torch._foreach_sqrt([x.abs() for x in a]),
        lambda a, b: torch._foreach_norm(a),
        lambda a, b: torch._foreach_add_(a, b),
        lambda a, b: torch._foreach_lerp_(a, b, 0.3),
        lambda a, b: torch._foreach_zero_(a),
        lambda a, b: torch._foreach_maximum(a, b),
        lambda a, b: torch._foreach_copy_(a, b),
    ):
        ours, theirs = moved(xs, device), copy.deepcopy(xs)
        result, expected = op(ours, moved(ys, device)), op(theirs, ys)
        check_equal(list(result or []), list(expected or []))
        check_equal(ours, theirs)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
@pytest.mark.parametrize("kind", ["foreach", "fused", "plain"])
def test_optimizers(device, name, kind):
    if kind == "fused" and name not in ("SGD", "Adam", "AdamW", "Adagrad"):
        pytest.skip("torch has no fused form")
    base = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    x, y = rand(7, 6), rand(7, 3)
    options = {"foreach": {"foreach": True}, "fused": {"fused": True}, "plain": {"foreach": False}}[kind]
    results = []
    for place in (torch.device("cpu"), device):
        model = copy.deepcopy(base).to(place)
        try:
            optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.05, **options)
        except RuntimeError as error:
            pytest.skip(str(error))
        for _ in range(4):
            optimizer.zero_grad()
            F.mse_loss(model(x.to(place)), y.to(place)).backward()
            optimizer.step()
        results.append([p.detach().cpu() for p in model.parameters()])
    for e, a in zip(*results, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-6)


def test_a_small_network_trains_like_on_the_cpu(device):
    base = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(4 * 16, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 5),
    )  # fmt: skip
    x, y = rand(6, 1, 8, 8), torch.tensor([0, 1, 2, 3, 4, 0])
    losses = []
    for place in (torch.device("cpu"), device):
        model = copy.deepcopy(base).to(place)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        run = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(place)), y.to(place))
            loss.backward()
            optimizer.step()
            run.append(loss.detach())
        losses.append(torch.stack(run).cpu())
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)


RANDOM = [
    lambda d: torch.randn(100, device=d),
    lambda d: torch.rand(100, device=d),
    lambda d: torch.randint(0, 50, (100,), device=d),
    lambda d: torch.randperm(50, device=d),
    lambda d: torch.empty(100, device=d).uniform_(2, 3),
    lambda d: torch.empty(100, device=d).normal_(1, 2),
    lambda d: torch.empty(100, device=d).exponential_(),
    lambda d: torch.empty(100, device=d).log_normal_(),
    lambda d: torch.empty(100, device=d).cauchy_(),
    lambda d: torch.empty(100, device=d).geometric_(0.3),
    lambda d: torch.empty(100, device=d).bernoulli_(0.4),
    lambda d: torch.bernoulli(torch.full((100,), 0.4, device=d)),
    lambda d: torch.multinomial(torch.arange(1.0, 11.0, device=d), 20, replacement=True),
    lambda d: torch.normal(torch.zeros(100, device=d), torch.ones(100, device=d)),
    lambda d: torch.poisson(torch.full((100,), 3.0, device=d)),
    lambda d: torch.nn.functional.dropout(torch.ones(100, device=d), 0.4),
    lambda d: torch.nn.functional.rrelu(-torch.ones(100, device=d), training=True),
    lambda d: torch.distributions.Gamma(torch.ones(100, device=d), torch.ones(100, device=d)).sample(),
    lambda d: torch.distributions.Binomial(10, torch.full((100,), 0.3, device=d)).sample(),
    lambda d: torch.rand_like(torch.ones(100, device=d)),
]


@contract("M-11")
@pytest.mark.parametrize("index", range(len(RANDOM)))
def test_random_ops_depend_on_the_seed_and_the_order_of_calls_only(device, index):
    draw = RANDOM[index]
    cpu_state = torch.get_rng_state()
    torch.mojo.manual_seed(7)
    first, second = draw(device).cpu(), draw(device).cpu()
    assert not torch.equal(first, second)
    torch.mojo.manual_seed(7)
    with torch.Stream(device) as side:
        again = draw(device)
        and_again = draw(device)
    side.synchronize()
    assert torch.equal(first, again.cpu()) and torch.equal(second, and_again.cpu())
    torch.mojo.manual_seed(8)
    assert not torch.equal(first, draw(device).cpu())
    assert torch.equal(torch.get_rng_state(), cpu_state), "the CPU's generator is not the device's"


@contract("M-11")
def test_a_generator_argument_is_used(device):
    a, b = (torch.Generator(device).manual_seed(5) for _ in range(2))
    x, y = torch.randn(50, device=device, generator=a), torch.randn(50, device=device, generator=b)
    assert torch.equal(x.cpu(), y.cpu())
    assert not torch.equal(x.cpu(), torch.randn(50, device=device, generator=a).cpu())


def test_distributions_are_what_they_should_be(device):
    torch.mojo.manual_seed(3)
    x = torch.randn(40000, device=device).cpu()
    assert abs(x.mean()) < 0.03 and abs(x.std() - 1) < 0.03
    kept = torch.nn.functional.dropout(torch.ones(40000, device=device), 0.25).cpu()
    assert abs((kept == 0).float().mean() - 0.25) < 0.02
    torch.testing.assert_close(kept.unique(), torch.tensor([0, 1 / 0.75]))
    assert torch.equal(torch.randperm(500, device=device).cpu().sort()[0], torch.arange(500))


def test_conj_and_neg_views(device):
    z = rand(3, 4, dtype=torch.complex64)
    for op in (
        lambda t: t.conj() + 1,
        lambda t: t.conj() @ t.mT,
        lambda t: t.conj().imag * 2,
        lambda t: torch.view_as_real(t).sum(0),
        lambda t: t.conj().clone(),
        lambda t: t.abs(),
        lambda t: t.real + t.imag,
    ):
        check(device, op, z)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_no_elements(device, shape):
    x = torch.zeros(shape)
    for op in (
        torch.exp,
        torch.neg,
        lambda t: t + t,
        lambda t: t.sum(),
        lambda t: t.softmax(0),
        torch.nonzero,
        lambda t: t.t() @ t if t.dim() == 2 else t,
    ):
        check(device, op, x)


def test_custom_ops_without_a_kernel_of_the_device(device):
    library = torch.library.Library("mojo_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    x = torch.arange(3.0, device=device)
    assert torch.ops.mojo_test.twice(x).tolist() == [0, 2, 4]
    assert torch.ops.mojo_test.twice(x).device == device


@pytest.mark.parametrize(
    "call",
    [lambda x: x.to_sparse(), lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), lambda x: x.to_sparse_csr()],
)
def test_layouts_that_the_device_does_not_have(device, call):
    with pytest.raises(NotImplementedError, match="sparse, quantized and nested tensors are not supported|layout"):
        call(torch.ones(3, 3, device=device))
