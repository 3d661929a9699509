"""torch.compile: the backends `eager` and `aot_eager` work on the device, Inductor is refused by one clear text."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from helpers import run_python
from torch import nn
from torch_mojo_backend.testing import Gate, assert_no_host_wait, schedule

BACKENDS = ["eager", "aot_eager"]


@pytest.fixture(autouse=True)
def forgotten():
    """No test sees what another has compiled."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Block(nn.Module):
    """A block of a GPT: attention and a feed-forward part, each after a layer norm."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_feed_forward = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.proj(y)
        return x + self.feed_forward(self.before_feed_forward(x))


class Gpt(nn.Module):
    """Two blocks between an embedding and a head that share their weight."""

    def __init__(self, words: int = 11, width: int = 16) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(32, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
        return self.head(self.blocks(x))


class Network(nn.Module):
    """A small convolutional network with batch norm, a residual and pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(x))
        x = F.max_pool2d(F.relu(x + self.norm(self.second(x))), 2)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)),
        lambda: torch.randn(5, 8),
    ),
    "convolutions": (Network, lambda: torch.randn(2, 3, 8, 8)),
    "gpt": (Gpt, lambda: torch.randint(0, 11, (2, 7))),
}


def step(model: Callable, parameters: list[nn.Parameter], x: torch.Tensor) -> list[torch.Tensor]:
    """Output and gradients of one step."""
    for p in parameters:
        p.grad = None
    out = model(x)
    out.square().mean().backward()
    return [out.detach(), *(p.grad for p in parameters)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_models_forward_and_backward(device, name, backend):
    torch.manual_seed(0)
    make, data = MODELS[name]
    model, x = make(), data()
    there = copy.deepcopy(model).to(device)
    expected = step(model, list(model.parameters()), x)
    compiled = torch.compile(there, backend=backend, fullgraph=True)
    for actual, value in zip(step(compiled, list(there.parameters()), x.to(device)), expected, strict=True):
        assert actual.device == device
        torch.testing.assert_close(actual.cpu(), value)
    for (key, buffer), value in zip(there.named_buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(buffer.cpu(), value, msg=key)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_training_step_is_queued_without_a_wait(device, backend):
    torch.manual_seed(0)
    model, tokens = Gpt().to(device), torch.randint(0, 11, (2, 8), device=device)
    plain = copy.deepcopy(model)
    optimizers = [torch.optim.AdamW(m.parameters(), foreach=True) for m in (model, plain)]
    compiled = torch.compile(model, backend=backend)

    def train(call: Callable, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        F.cross_entropy(call(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    train(compiled, optimizers[0])  # compiles
    torch.accelerator.synchronize()
    with Gate(), assert_no_host_wait():
        train(compiled, optimizers[0])
    for _ in range(2):
        train(plain, optimizers[1])
    for actual, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [True, None])
def test_dynamic_shapes(device, backend, dynamic):
    graphs = []

    def count(graph: torch.fx.GraphModule, inputs: list) -> Callable:
        graphs.append(graph)
        return torch._dynamo.lookup_backend(backend)(graph, inputs)

    linear = nn.Linear(4, 3).to(device)
    compiled = torch.compile(lambda x: F.relu(linear(x)).sum(0) * x.size(0), backend=count, dynamic=dynamic)
    for rows in (5, 7, 9, 13):
        x = torch.randn(rows, 4, device=device, requires_grad=True)
        compiled(x).sum().backward()
        expected = F.relu(linear(x)).sum(0) * rows
        torch.testing.assert_close(compiled(x), expected)
        torch.testing.assert_close(x.grad, torch.autograd.grad(expected.sum(), x)[0])
    assert len(graphs) == (1 if dynamic else 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_graph_breaks(device, backend):
    def by_value(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum() > 0:  # the host looks at a value
            y = y + 1
        torch._dynamo.graph_break()
        return y * y.sum().item()

    compiled = torch.compile(by_value, backend=backend)
    for sign in (1, -1):
        x = sign * torch.arange(1.0, 4.0, device=device).requires_grad_()
        assert torch.equal(compiled(x), by_value(x))
        (actual,), (expected,) = (torch.autograd.grad(f(x).sum(), x) for f in (compiled, by_value))
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_data_dependent_sizes(device, backend):
    x = torch.tensor([1.0, -2.0, 3.0], device=device)
    assert torch.compile(lambda x: x[x > 0] * 2, backend=backend)(x).tolist() == [2.0, 6.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_model_runs_on_the_current_stream(device, stream, backend):
    torch.manual_seed(0)
    model, x = MODELS["mlp"][0]().to(device), torch.randn(5, 8, device=device)
    parameters = list(model.parameters())
    compiled = torch.compile(model, backend=backend)
    expected = [value.cpu() for value in step(compiled, parameters, x)]
    torch.accelerator.synchronize()
    with Gate(stream):
        with stream, assert_no_host_wait():
            found = step(compiled, parameters, x)
        assert torch.accelerator.current_stream().query() and not stream.query()
    stream.synchronize()
    for actual, value in zip(found, expected, strict=True):
        torch.testing.assert_close(actual.cpu(), value)


def on_a_stream(x: torch.Tensor, side: torch.Stream) -> torch.Tensor:
    main = torch.accelerator.current_stream()
    side.wait_stream(main)
    with side:
        y = x * 2
    main.wait_stream(side)
    y.record_stream(main)
    return y + x


def with_an_event(x: torch.Tensor, side: torch.Stream) -> torch.Tensor:
    y = x + 1
    side.wait_event(torch.accelerator.current_stream().record_event())
    with torch.mojo.stream(side):
        y = y * 3
    torch.accelerator.current_stream().wait_stream(side)
    return y - x


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", [on_a_stream, with_an_event])
def test_streams_inside_a_compiled_function(device, stream, backend, function):
    x = torch.arange(1000.0, device=device)
    expected = function(x, stream).cpu()
    compiled = torch.compile(function, backend=backend)
    for seed in range(10):
        with schedule(seed):
            assert torch.equal(compiled(x, stream).cpu(), expected), f"under seed {seed}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_functions_of_the_device_module_inside_a_compiled_function(device, backend):
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + torch.accelerator.current_device_index() + torch.accelerator.device_count()
        torch.mojo.synchronize()
        torch.accelerator.synchronize()
        with torch.device(x.device):
            return y + torch.ones(2)

    x = torch.zeros(2, device=device)
    assert torch.equal(torch.compile(function, backend=backend)(x), function(x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_numbers_are_those_of_the_plain_function(device, backend):
    def draw(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.dropout(x), torch.rand_like(x), torch.randn(3, device=x.device), torch.randperm(9, device=x.device)

    x = torch.ones(40, device=device, requires_grad=True)
    compiled = torch.compile(draw, backend=backend)
    found = []
    for function in (draw, compiled):
        torch.manual_seed(3)
        results = [*function(x), *function(x)]
        results[0].sum().backward()
        found.append([*results, x.grad.clone()])
        x.grad = None
    for actual, expected in zip(*found, strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_around_and_inside(device, backend, dtype):
    torch.manual_seed(0)
    linear, x = nn.Linear(8, 8).to(device), torch.randn(4, 8, device=device)

    def inside(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("mojo", dtype=dtype):
            return F.softmax(linear(x), -1) @ x.t()

    def around(x: torch.Tensor) -> torch.Tensor:
        return F.softmax(linear(x), -1) @ x.t()

    expected = inside(x)
    assert expected.dtype == dtype
    assert torch.equal(torch.compile(inside, backend=backend)(x), expected)
    with torch.autocast("mojo", dtype=dtype):
        assert torch.equal(torch.compile(around, backend=backend)(x), expected)


def test_a_compiled_optimizer(device):
    torch.manual_seed(0)
    found = []
    weights = torch.randn(3, 4)
    for compiled in (False, True):
        p = nn.Parameter(weights.to(device))
        optimizer = torch.optim.AdamW([p], lr=0.1)
        take = torch.compile(optimizer.step, backend="aot_eager") if compiled else optimizer.step
        for _ in range(3):
            p.grad = p.detach() * 2
            take()
        found.append(p.detach())
    torch.testing.assert_close(*found)


# --- Inductor ---


def refused(function: Callable[[], object]) -> None:
    with pytest.raises(RuntimeError, match="'inductor', generates no code for the device 'mojo'") as caught:
        function()
    assert "backend='aot_eager'" in str(caught.value) and "backend='eager'" in str(caught.value)
    assert "KeyError" not in str(caught.value) and "LoweringException" not in str(caught.value)


def test_inductor_is_refused(device):
    x = torch.ones(3, device=device)
    linear = nn.Linear(3, 3).to(device)
    refused(lambda: torch.compile(lambda x: x + 1)(x))
    refused(lambda: torch.compile(linear)(x))
    refused(lambda: torch.compile(lambda: torch.ones(3, device=device) + 1)())
    refused(lambda: torch.compile(lambda x: (x.to(device) + 1).cpu())(torch.ones(3)))
    refused(lambda: torch.compile(lambda x: x + 1, mode="reduce-overhead")(x))
    refused(lambda: torch.compile(lambda x: x + 1, backend="inductor", dynamic=True)(x))
    refused(lambda: torch.compile(lambda x: x.sort(), fullgraph=True)(x))
    exported = torch.export.export(linear, (x,))
    refused(lambda: torch._inductor.aoti_compile_and_package(exported))
    assert torch.compile(linear, backend="aot_eager")(x).device == device, "and nothing is left behind"


def test_inductor_still_serves_the_cpu(device):
    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).relu().sum()

    refused(lambda: torch.compile(function)(torch.ones(3, device=device)))
    lowered = []
    compile_fx = torch._inductor.compile_fx.compile_fx

    def inductor(graph: torch.fx.GraphModule, inputs: list) -> Callable:
        lowered.append(graph)
        return compile_fx(graph, inputs, inner_compile=lambda graph, *_, **__: graph.forward)

    x = torch.randn(7)
    torch.testing.assert_close(torch.compile(function, backend=inductor)(x), function(x))
    assert len(lowered) == 1


@pytest.mark.slow
def test_inductor_compiles_for_the_cpu(device):
    x = torch.randn(7, requires_grad=True)
    (expected,) = torch.autograd.grad((x * 2).relu().sum(), x)
    (actual,) = torch.autograd.grad(torch.compile(lambda x: (x * 2).relu().sum())(x), x)
    torch.testing.assert_close(actual, expected)


def test_registration_imports_no_compiler():
    run_python(
        """
        import sys
        (torch.ones(2, device="mojo") + 1).sum().item()
        heavy = [name for name in sys.modules if name.startswith(("torch._dynamo.", "torch._inductor."))]
        assert not heavy, heavy
        """
    )


@pytest.mark.slow
@pytest.mark.parametrize("first", ["torch._inductor.compile_fx", "torch_mojo_backend"])
def test_inductor_is_refused_whatever_is_imported_first(first):
    run_python(
        f"""
        import importlib, torch
        importlib.import_module("{first}")
        import torch_mojo_backend
        torch_mojo_backend.register_mojo_devices()
        from torch._inductor.compile_fx import compile_fx
        assert compile_fx.__name__ == "compile_fx" and compile_fx.__module__ == "torch._inductor.compile_fx"
        try:
            torch.compile(lambda x: x + 1)(torch.ones(2, device="mojo"))
        except RuntimeError as error:
            assert "generates no code" in str(error), error
        else:
            raise AssertionError
        """,
        register=False,
    )
