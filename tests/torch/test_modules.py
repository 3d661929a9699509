"""torch's module database: forward and backward of every module on the device equal the CPU's, to the last bit."""

import copy
import re

import pytest
import torch
from cpu_reference import Tolerance, check_same, copied, tensors
from torch import nn
from torch.testing._internal.common_modules import ModuleErrorEnum, ModuleInfo, ModuleInput, module_db

# What torch says of some of the database's own samples.
pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}:UserWarning")
    for text in ("enable_nested_tensor", "reduction. 'mean'", "LSTM with projections", "linear_cross_entropy")
]

# The modules whose values are not CPU's to the last bit.
CELLS = Tolerance("core runs CPU's cells as a composition that autograd differentiates, an accelerator's as one kernel")
LAYERS = Tolerance(
    "core runs CPU's LSTM in oneDNN, and multiplies all steps by the input weights at once on the CPU alone"
)
TOLERANCES = {
    "nn.GRUCell": CELLS,
    "nn.LSTMCell": CELLS,
    "nn.RNN": LAYERS,
    "nn.GRU": LAYERS,
    "nn.LSTM": LAYERS,
}
# What is wrong, and goes red once it is right.
# More than ten seconds.
SLOW = {"nn.LinearCrossEntropyLoss"}


def marks_of(info: ModuleInfo) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if info.name in SLOW else []


def cases() -> list:
    """Each module of the database, in training and, where that differs, in evaluation."""
    return [
        pytest.param(info, training, id=f"{info.name}-{'train' if training else 'eval'}", marks=marks_of(info))
        for info in module_db
        if torch.float32 in info.supported_dtypes("cpu")
        for training in ([True, False] if info.train_and_eval_differ else [True])
    ]


def inputs_of(info: ModuleInfo, training: bool) -> list[ModuleInput]:
    torch.manual_seed(0)
    made = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
    assert made, "no input"
    return [i for i in made if i.forward_input is not None]


def build(info: ModuleInfo, sample: ModuleInput, training: bool) -> nn.Module:
    torch.manual_seed(1)
    made = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
    return made.to(torch.float32).train(training)


def forward(module: nn.Module, sample: ModuleInput, device: torch.device | str):
    """What the module gives for a copy of the sample's arguments, and those of them that want a gradient."""
    arguments = copied([list(sample.forward_input.args), sample.forward_input.kwargs], device)
    leaves = [t for t in tensors(arguments) if t.requires_grad]
    return module(*arguments[0], **arguments[1]), leaves


def backward(output, device: torch.device | str) -> None:
    """From the same gradients on every device."""
    ends = [t for t in tensors(output) if t.requires_grad]
    generator = torch.Generator().manual_seed(2)
    if ends:
        torch.autograd.backward(ends, [torch.randn(t.shape, generator=generator).to(device) for t in ends])


def moved(module: nn.Module, info: ModuleInfo, sample: ModuleInput, device: torch.device) -> nn.Module:
    """A copy on the device; a lazy module finds its shapes there, and then gets the values of `module`."""
    if not info.is_lazy:
        return copy.deepcopy(module).to(device)
    ours = build(info, sample, module.training).to(device)
    with torch.no_grad():
        forward(ours, sample, device)
        forward(module, sample, "cpu")
    ours.load_state_dict(module.state_dict())
    return ours


def check(info: ModuleInfo, sample: ModuleInput, training: bool, device: torch.device) -> None:
    tolerance = TOLERANCES.get(info.name)
    theirs = build(info, sample, training)
    ours = moved(theirs, info, sample, device)
    expected, their_leaves = forward(theirs, sample, "cpu")
    actual, our_leaves = forward(ours, sample, device)
    check_same(tensors(actual), tensors(expected), "output", tolerance, strides=True)
    check_same(ours.buffers(), theirs.buffers(), "buffer", tolerance)
    assert [t.requires_grad for t in tensors(actual)] == [t.requires_grad for t in tensors(expected)]
    backward(expected, "cpu")
    backward(actual, device)
    check_same([t.grad for t in our_leaves], [t.grad for t in their_leaves], "gradient of argument", tolerance)
    names = [name for name, _ in theirs.named_parameters()]
    assert [name for name, _ in ours.named_parameters()] == names
    for name in names:
        a, e = ours.get_parameter(name), theirs.get_parameter(name)
        check_same([a.grad], [e.grad], f"gradient of {name}", tolerance)


@pytest.mark.parametrize("info, training", cases())
def test_a_module_gives_what_it_gives_on_the_cpu(device, info, training):
    for number, sample in enumerate(inputs_of(info, training)):
        try:
            check(info, sample, training, device)
        except Exception as error:
            raise AssertionError(f"sample {number} {sample.desc}: {sample.constructor_input.args}") from error


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


def test_moving_a_module_keeps_its_parameters(device, other):
    """They change their device in place, as between CPU and CUDA: what is tied stays tied, and an optimizer that was
    made before goes on."""
    module = Tied()
    parameter = module.head.weight
    optimizer = torch.optim.SGD(module.parameters(), 0.5)
    before = parameter.detach().clone()
    for place in (device, other, torch.device("cpu"), device):
        module.to(place)
        assert module.embedding.weight is module.head.weight is parameter
        assert parameter.device == place
        assert torch.equal(parameter.detach().cpu(), before)
        module.zero_grad()
        module.head(module.embedding(torch.tensor([1, 2], device=place))).sum().backward()
        assert parameter.grad.device == place
    module.cpu()  # its gradient too
    assert parameter.grad.device.type == "cpu"
    module.to(device)
    gradient = parameter.grad.cpu()
    optimizer.step()
    assert torch.equal(parameter.detach().cpu(), before - 0.5 * gradient)


def wrong_calls(info: ModuleInfo) -> list[tuple[bool, ModuleInput]]:
    """What the database says is an error in a call; the errors of constructors are found on the CPU."""
    return [
        (training, error.module_error_input)
        for training in (True, False)
        for error in info.module_error_inputs_func(
            info, device="cpu", dtype=torch.float32, requires_grad=False, training=training
        )
        if error.error_on == ModuleErrorEnum.FORWARD_ERROR
    ]


ERRING = [info for info in module_db if info.module_error_inputs_func is not None and wrong_calls(info)]


def same_text(actual: str, expected: str) -> bool:
    """But for the device, and the name of the op where only the kernel finds the error."""
    actual = re.sub(r" \(while running .*\)$", "", actual).replace("mojo:0", "cpu")
    return re.sub(r"mojo(\w+)Type", r"torch.\1Tensor", actual) == expected


@pytest.mark.parametrize("info", ERRING, ids=lambda info: info.name)
def test_wrong_input_raises_what_it_raises_on_the_cpu(device, info):
    raised = 0
    for training, sample in wrong_calls(info):
        theirs = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).train(training)
        ours = copy.deepcopy(theirs).to(device)
        try:
            forward(theirs, sample, "cpu")
            continue  # wrong in training alone
        except Exception as error:
            expected = error
        raised += 1
        with pytest.raises(type(expected)) as actual:
            forward(ours, sample, device)
            torch.accelerator.synchronize()  # where the kernel alone can tell
        assert same_text(str(actual.value), str(expected)), f"{actual.value}\n{expected}"
    assert raised


# Modules that draw numbers, and the shape of an input.
DRAWING = [
    (lambda: nn.Dropout(0.4), (40, 20)),
    (lambda: nn.Dropout(0.4, inplace=True), (40, 20)),
    (lambda: nn.Dropout1d(0.4), (8, 16, 5)),
    (lambda: nn.Dropout2d(0.4), (8, 16, 5, 5)),
    (lambda: nn.Dropout3d(0.4), (8, 16, 3, 3, 3)),
    (lambda: nn.AlphaDropout(0.4), (40, 20)),
    (lambda: nn.FeatureAlphaDropout(0.4), (8, 16, 5, 5)),
    (lambda: nn.RReLU(), (40, 20)),
    (lambda: nn.RReLU(inplace=True), (40, 20)),
    (lambda: nn.FractionalMaxPool2d(2, output_ratio=0.5), (8, 3, 19, 19)),
    (lambda: nn.FractionalMaxPool3d(2, output_ratio=0.5), (8, 3, 11, 11, 11)),
    (lambda: nn.LSTM(8, 16, num_layers=2, dropout=0.4), (7, 3, 8)),
    (lambda: nn.TransformerEncoderLayer(16, 4, 32, dropout=0.4), (7, 3, 16)),
    (lambda: nn.TransformerDecoderLayer(16, 4, 32, dropout=0.4), ((7, 3, 16), (5, 3, 16))),
]


@pytest.mark.parametrize("make, shape", DRAWING, ids=lambda v: v()._get_name() if callable(v) else "")
def test_a_module_that_draws_numbers(device, make, shape):
    """In training: the right shapes, and values that the seed alone decides. In evaluation, where they are not drawn:
    those of the CPU."""
    shapes = shape if isinstance(shape[0], tuple) else (shape,)
    torch.manual_seed(0)
    theirs = make()
    ours = copy.deepcopy(theirs).to(device)
    inputs = [torch.randn(s) for s in shapes]

    def run(module: nn.Module, where: torch.device | str, seed: int = 3) -> list[torch.Tensor]:
        """Outputs and gradients."""
        torch.manual_seed(seed)
        leaves = [i.clone().to(where).requires_grad_() for i in inputs]
        outputs = tensors(module(*(leaf * 1 for leaf in leaves)))
        module.zero_grad()
        backward(outputs, where)
        return [o.detach() for o in outputs] + [t.grad for t in [*leaves, *module.parameters()]]

    once, again, other, expected = run(ours, device), run(ours, device), run(ours, device, seed=4), run(theirs, "cpu")
    for a, e in zip(once, expected, strict=True):
        assert (a.shape, a.dtype, a.stride()) == (e.shape, e.dtype, e.stride())
        assert a.isfinite().all()
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    assert not torch.equal(once[0], other[0])
    if "Fractional" not in theirs._get_name():
        ours.eval(), theirs.eval()
        tolerance = TOLERANCES.get(f"nn.{theirs._get_name()}")
        check_same(run(ours, device), run(theirs, "cpu"), "evaluation", tolerance)
