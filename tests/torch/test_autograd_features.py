"""What autograd has beside backward: anomaly mode, hooks, checkpoints, double backward; each against the CPU."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.gradcheck import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts
from torch_mojo_backend.testing import Gate, assert_no_host_wait, schedule

PLACES = ["cpu", "mojo"]


def on_both(call: Callable[[torch.device], Any]) -> None:
    """`call` gives the same on the CPU and on the device."""
    expected, actual = (call(torch.device(place)) for place in PLACES)
    torch.testing.assert_close(to_cpu(actual), to_cpu(expected))


def to_cpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, tuple | list):
        return [to_cpu(v) for v in value]
    return value


# --- anomaly mode ---


class BadBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * float("nan")


ANOMALIES = {
    "SqrtBackward0": lambda x: (x.sqrt() * 0).sum(),
    "DivBackward0": lambda x: (x / x).sum(),
    "PowBackward0": lambda x: (x.abs() ** 0.5 * 0).sum(),
    "BadBackwardBackward": lambda x: BadBackward.apply(x).sum(),
    "MulBackward0": lambda x: (x * float("inf") * 0).sum(),
}


@pytest.mark.parametrize("name", ANOMALIES)
def test_anomaly_mode_names_the_function_that_made_a_nan(device, name):
    texts = []
    for place in ("cpu", device):
        x = torch.zeros(3, device=place, requires_grad=True)
        with warnings.catch_warnings(record=True) as caught, torch.autograd.set_detect_anomaly(True):
            warnings.simplefilter("always")
            y = ANOMALIES[name](x)
            with pytest.raises(RuntimeError, match=f"'{name}' returned nan values") as error:
                y.backward()
        texts.append(str(error.value))
        (trace,) = (str(w.message) for w in caught if "Error detected in" in str(w.message))
        assert name in trace and __file__ in trace, "it shows where forward called it"
    assert texts[0] == texts[1]


def test_anomaly_mode_leaves_good_gradients_alone(device):
    def call(place: torch.device) -> Any:
        x = torch.arange(1.0, 4.0, device=place).requires_grad_()
        with torch.autograd.detect_anomaly():
            x.log().square().sum().backward()
        return x.grad

    with pytest.warns(UserWarning, match="Anomaly Detection"):
        on_both(call)


def test_anomaly_mode_without_the_check_for_nans_does_not_wait(device):
    x = torch.zeros(3, device=device, requires_grad=True)
    torch.accelerator.synchronize()
    with torch.autograd.set_detect_anomaly(True, check_nan=False), Gate(), assert_no_host_wait():
        (x.sqrt() * 0).sum().backward()
    assert x.grad.isnan().all()


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_backward_uses_the_number_of_threads_that_is_set_now(device, order):
    # torch's threads for backward keep the number of their start. A sum that is cut in two is rounded in another way.
    before = torch.get_num_threads()
    x = torch.randn(1 << 20)
    try:
        for threads in order:
            torch.set_num_threads(threads)
            gradients = []
            for place in ("cpu", device):
                bias = torch.zeros(1, device=place, requires_grad=True)
                (x.to(place) * (x.to(place) + bias)).sum().backward()
                gradients.append(bias.grad.cpu())
            assert torch.equal(*gradients)
    finally:
        torch.set_num_threads(before)


# --- hooks ---


def test_hooks_of_tensors(device):
    def call(place: torch.device) -> Any:
        seen: list = []
        x = torch.arange(4.0, device=place, requires_grad=True)
        y = x * 2
        y.retain_grad()
        y.register_hook(lambda g: seen.append(g.clone()))
        handle = y.register_hook(lambda g: g * 100)
        x.register_hook(lambda g: g + 1)
        (y * y).sum().backward(retain_graph=True)
        handle.remove()
        (y * y).sum().backward()
        return [x.grad, y.grad, *seen]

    on_both(call)


def test_post_accumulate_grad_hooks_step_in_backward(device):
    def call(place: torch.device) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(place)
        for p in model.parameters():
            optimizer = torch.optim.SGD([p], lr=0.1)

            def step(p: torch.Tensor, optimizer: torch.optim.Optimizer = optimizer) -> None:
                optimizer.step()
                optimizer.zero_grad()

            p.register_post_accumulate_grad_hook(step)
        for _ in range(3):
            model(torch.ones(2, 3, device=place)).sum().backward()
        assert all(p.grad is None for p in model.parameters())
        return list(model.parameters())

    on_both(call)


def test_hooks_of_modules(device):
    def call(place: torch.device) -> Any:
        torch.manual_seed(0)
        seen: list = []
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).to(place)
        model[0].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
        model[0].register_forward_hook(lambda m, args, out: out * 2)
        model.register_full_backward_pre_hook(lambda m, grads: (grads[0] * 3,))
        model[0].register_full_backward_hook(lambda m, into, out: seen.extend([*into, *out]))
        x = torch.ones(2, 3, device=place, requires_grad=True)
        model(x).sum().backward()
        return [x.grad, model[0].weight.grad, *seen]

    on_both(call)


def test_hooks_of_saved_tensors_and_of_nodes(device):
    def call(place: torch.device) -> Any:
        packed: list = []

        def pack(x: torch.Tensor) -> torch.Tensor:
            packed.append(x.device.type == place.type)
            return x.cpu()

        x = torch.arange(1.0, 4.0, device=place).requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.to(place)):
            y = x * x.exp()
        y.grad_fn.register_prehook(lambda grads: (grads[0] * 2,))
        y.grad_fn.register_hook(lambda into, out: tuple(g * 3 for g in into))
        y.sum().backward()
        assert packed and all(packed)
        return x.grad

    on_both(call)


def test_saved_tensors_on_the_cpu(device):
    x = torch.randn(100, device=device, requires_grad=True)
    for pin in (False, True):
        with torch.autograd.graph.save_on_cpu(pin_memory=pin):
            y = (x.sin() * x).sum()
        (gradient,) = torch.autograd.grad(y, x)
        torch.testing.assert_close(gradient, x.cos() * x + x.sin())


def test_hooks_see_work_that_is_queued(device):
    x = torch.ones(3, device=device, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * 2)
    torch.accelerator.synchronize()
    with Gate(), assert_no_host_wait():
        y.sum().backward()
    assert x.grad.tolist() == [4.0] * 3


# --- checkpoints ---


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(self.first(x).relu(), 0.5)
        return x + F.dropout(self.second(y), 0.3)


def gradients(model: nn.Module, x: torch.Tensor, call: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
    model.zero_grad()
    x = x.detach().requires_grad_()
    torch.manual_seed(11)
    out = call(x)
    F.dropout(out, 0.5).square().sum().backward()
    return [out.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_a_checkpoint_draws_the_same_masks_again(device, reentrant, autocast):
    torch.manual_seed(0)
    model, x = Dropping().to(device), torch.randn(8, 16, device=device)
    with torch.autocast("mojo", dtype=torch.bfloat16, enabled=autocast):
        expected = gradients(model, x, model)
        found = gradients(model, x, lambda x: checkpoint(model, x, use_reentrant=reentrant))
    for actual, value in zip(found, expected, strict=True):
        assert torch.equal(actual, value)
    # The state of the generator is set back in backward, and restored after it.
    torch.manual_seed(11)
    checkpoint(model, x.clone().requires_grad_(), use_reentrant=reentrant).sum().backward()
    after = torch.rand(3, device=device)
    torch.manual_seed(11)
    model(x)
    assert torch.equal(after, torch.rand(3, device=device))


def test_a_checkpoint_that_does_not_keep_the_state_draws_others(device):
    torch.manual_seed(0)
    model, x = Dropping().to(device), torch.randn(8, 16, device=device)
    expected = gradients(model, x, model)
    found = gradients(model, x, lambda x: checkpoint(model, x, use_reentrant=False, preserve_rng_state=False))
    assert torch.equal(found[0], expected[0]) and not torch.equal(found[2], expected[2])


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_on_another_device(other, reentrant):
    torch.manual_seed(0)
    model, x = Dropping().to(other), torch.randn(8, 16, device=other)
    expected = gradients(model, x, model)
    found = gradients(model, x, lambda x: checkpoint(model, x, use_reentrant=reentrant))
    assert all(torch.equal(actual, value) for actual, value in zip(found, expected, strict=True))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_equal_the_cpus_and_free_memory(device, reentrant):
    def call(place: torch.device) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4))).to(place)
        x = torch.ones(4, 8, device=place, requires_grad=True)
        checkpoint_sequential(model, 2, x, use_reentrant=reentrant).sum().backward()
        return [x.grad, *(p.grad for p in model.parameters())]

    on_both(call)
    layers = nn.Sequential(*(nn.Tanh() for _ in range(16)))
    x = torch.ones(1 << 16, device=device, requires_grad=True)
    peaks = []
    for function in (layers, lambda x: checkpoint_sequential(layers, 4, x, use_reentrant=reentrant)):
        torch.mojo.reset_peak_memory_stats()
        y = function(x)
        peaks.append(torch.mojo.memory_allocated())
        y.sum().backward()
        x.grad = None
        del y
    assert peaks[1] < peaks[0] / 2


def test_selective_checkpoints(device):
    def call(place: torch.device) -> Any:
        torch.manual_seed(0)
        model = Dropping().to(place).eval()
        x = torch.ones(4, 16, device=place, requires_grad=True)
        save = [torch.ops.aten.addmm.default, torch.ops.aten.mm.default]

        def forward(x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(model.first(x)) @ model.second.weight

        out = checkpoint(forward, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(save))
        out.sum().backward()
        return [x.grad, model.first.weight.grad, model.second.weight.grad]

    on_both(call)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_on_a_side_stream_under_an_adversarial_schedule(device, stream, reentrant, seed):
    torch.manual_seed(0)
    model, x = Dropping().to(device), torch.randn(8, 16, device=device)
    expected = [value.cpu() for value in gradients(model, x, model)]
    stream.wait_stream(torch.accelerator.current_stream())
    with schedule(seed), stream:
        found = gradients(model, x, lambda x: checkpoint(model, x, use_reentrant=reentrant))
        found = [value.cpu() for value in found]
    assert all(torch.equal(actual, value) for actual, value in zip(found, expected, strict=True))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_is_queued_without_a_wait(device, reentrant):
    model, x = Dropping().to(device), torch.randn(8, 16, device=device)
    run = lambda: gradients(model, x, lambda x: checkpoint(model, x, use_reentrant=reentrant))  # noqa: E731
    run()
    torch.accelerator.synchronize()
    with Gate(), assert_no_host_wait():
        run()


# --- double backward ---


def second(function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> Callable[[torch.device], Any]:
    """Gradients of the norm of the gradients."""

    def call(place: torch.device) -> Any:
        generator = torch.Generator().manual_seed(0)
        inputs = [torch.randn(s, generator=generator).to(place).requires_grad_() for s in shapes]
        first = torch.autograd.grad(function(*inputs).square().sum(), inputs, create_graph=True)
        sum(g.square().sum() for g in first).backward()
        return [*first, *(x.grad for x in inputs)]

    return call


def lstm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    h, c = x[:, :4] * 0, x[:, :4] * 0
    return torch.cat(torch.lstm_cell(x, (h, c), weight, weight[:, :4]), 1)


def gru(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.gru_cell(x, x[:, :4].tanh(), weight[:12], weight[:12, :4])


TWICE = {
    "linear": (F.linear, (3, 4), (2, 4), (2,)),
    "conv1d": (F.conv1d, (2, 2, 7), (3, 2, 3), (3,)),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1, stride=2, groups=2), (2, 4, 6, 6), (4, 2, 3, 3)),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2), (1, 2, 4, 4), (2, 3, 2, 2)),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True).tanh(), (5, 3)),
    "layer_norm": (lambda x, w: F.layer_norm(x, (6,), w), (4, 6), (6,)),
    "group_norm": (lambda x: F.group_norm(x, 2), (2, 4, 3)),
    "softmax": (lambda x: F.softmax(x, -1), (3, 5)),
    "gelu": (F.gelu, (7,)),
    "embedding": (lambda w: F.embedding(torch.tensor([0, 2, 2], device=w.device), w), (4, 3)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (1, 2, 4, 4)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (1, 1, 3, 3)),
    "attention": (
        lambda q, k: F.softmax(q @ k.transpose(1, 2), -1) @ k,
        (2, 3, 4),
        (2, 3, 4),
    ),
    "lstm": (lstm, (2, 5), (16, 5)),
    "gru": (gru, (2, 5), (16, 5)),
    "cumsum": (lambda x: x.cumsum(0).exp(), (4,)),
    "solve": (lambda a, b: torch.linalg.solve(a @ a.T + torch.eye(3, device=a.device), b), (3, 3), (3, 2)),
    "fft": (lambda x: torch.fft.rfft(x).abs(), (8,)),
}


@pytest.mark.parametrize("name", TWICE)
def test_double_backward(device, name):
    function, *shapes = TWICE[name]
    on_both(second(function, *shapes))


@pytest.mark.parametrize("name", ["conv2d", "layer_norm", "lstm", "gru"])
def test_gradients_are_those_of_finite_differences(device, name):
    function, *shapes = TWICE[name]
    torch.manual_seed(0)
    inputs = [torch.randn(s, device=device, dtype=torch.float64, requires_grad=True) for s in shapes]
    assert gradcheck(function, inputs, fast_mode=True)
    assert gradgradcheck(function, inputs, fast_mode=True)


def test_a_gradient_penalty_trains_as_on_the_cpu(device):
    def call(place: torch.device) -> Any:
        torch.manual_seed(0)
        critic = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 1)).to(place)
        optimizer = torch.optim.Adam(critic.parameters(), lr=0.01)
        x = torch.linspace(-1, 1, 12).view(3, 4).to(place)
        for _ in range(4):
            optimizer.zero_grad()
            x.requires_grad_()
            (g,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
            ((g.norm(dim=1) - 1) ** 2).mean().backward()
            optimizer.step()
        return list(critic.parameters())

    on_both(call)


def test_errors_of_backward_are_the_cpus(device):
    texts = []
    for place in ("cpu", device):
        x = torch.ones(3, device=place, requires_grad=True)
        y = x.exp()
        y.sum().backward()
        kinds: list[Callable] = [
            lambda y=y: y.sum().backward(),  # a second time
            lambda x=x: x.backward(),  # not a number
            lambda x=x: torch.autograd.grad((x * 2).detach().sum(), x),
            lambda x=x: x.mul_(2),  # a leaf in place
            lambda x=x: changed(x),
            lambda x=x: (x * 2).backward(torch.ones(2, device=x.device)),
        ]
        texts.append([])
        for kind in kinds:
            with pytest.raises(RuntimeError) as caught:
                kind()
            texts[-1].append(str(caught.value).replace("mojoFloatType", "torch.FloatTensor"))
    for ours, theirs in zip(*reversed(texts), strict=True):
        assert ours == theirs


def changed(x: torch.Tensor) -> None:
    y = x.exp()
    y.add_(1)
    y.sum().backward()


def test_autograd_functions_with_several_outputs_and_vmap(device):
    class Both(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.sin(), x.cos()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*output)

        @staticmethod
        def backward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            sin, cos = ctx.saved_tensors
            return a * cos - b * sin

    def call(place: torch.device) -> Any:
        x = torch.arange(3.0, device=place, requires_grad=True)
        a, b = Both.apply(x)
        (a * b).sum().backward()
        return [x.grad, torch.func.vmap(Both.apply)(x)]

    on_both(call)


def test_gradients_do_not_flow_where_they_must_not(device):
    def call(place: torch.device) -> Any:
        x = torch.ones(2, device=place, requires_grad=True)
        with torch.no_grad():
            a = x * 2
        with torch.inference_mode():
            b = x * 3
        c = x.detach() * 4
        y = x * a + c.clone()
        y.sum().backward()
        assert not a.requires_grad and b.is_inference() and not c.requires_grad
        with pytest.raises(RuntimeError, match="[Ii]nference"):
            b.requires_grad_()
        return x.grad

    on_both(call)
