"""torch's optimizer database: steps on the device equal the CPU's, to the last bit, in every implementation."""

import copy
import math
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.testing._internal.common_optimizers import OptimizerInfo, OptimizerInput, optim_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch_mojo_backend.testing import Gate, assert_no_host_wait

STEPS = 3
INFOS = {info.name: info for info in optim_db if not info.only_supports_sparse_grads}
FLAGS: dict[str, dict[str, bool]] = {
    "default": {},
    "forloop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
# Those that ask the device for numbers at each step, on any accelerator.
ASKING = {
    "Adafactor": "norms of parameters and updates",
    "ASGD": "the count of steps, which it keeps there",
    "LBFGS": "losses, and whether it has converged",
}


def has(info: OptimizerInfo, implementation: str, dtype: torch.dtype = torch.float32) -> bool:
    """Whether torch has such an optimizer."""
    if dtype.is_complex and not info.supports_complex:
        return False
    if implementation == "fused":
        return "cpu" in info.supports_fused_on
    return implementation == "default" or "foreach" in info.supported_impls


def implementations(info: OptimizerInfo) -> list[str]:
    """All but the default, which is one of the others, unless there is no other."""
    return [name for name in FLAGS if name != "default" and has(info, name)] or ["default"]


def configurations(device_type: str = "cpu", *, capturable: bool = False) -> list:
    """Each optimizer's own list of options, with each implementation; `capturable` gives CUDA's additional ones."""
    return [
        pytest.param(info, given, implementation, id=f"{info.name}-{given.desc.replace(' ', '_')}-{implementation}")
        for info in INFOS.values()
        for given in info.optim_inputs_func(device_type)
        if given.kwargs.get("capturable", False) == capturable
        for implementation in FLAGS
        if has(info, implementation)
    ]


def shapes_for(info: OptimizerInfo) -> list[tuple[int, ...]]:
    if info.name == "Muon":  # matrices alone
        return [(10, 7), (3, 3), (1, 8), (120, 50)]
    shapes: list[tuple[int, ...]] = [(10, 7), (7,), (), (3, 4, 5), (5000,)]
    return shapes if info.name == "Adafactor" else [*shapes, (0,)]  # it divides by the number of elements


class Run:
    """A few steps of an optimizer on a device, with the same parameters and gradients wherever it is."""

    def __init__(
        self,
        info: OptimizerInfo,
        given: OptimizerInput,
        flags: dict[str, bool],
        device: torch.device | str,
        dtype: torch.dtype = torch.float32,
        shapes: list[tuple[int, ...]] | None = None,
    ) -> None:
        self.device = device
        self.generator = torch.Generator().manual_seed(5)
        self.parameters = [torch.nn.Parameter(self.draw(shape, dtype)) for shape in shapes or shapes_for(info)]
        self.without_gradient = torch.nn.Parameter(self.draw((3, 3), dtype))
        groups = [{"params": [*self.parameters[:2], self.without_gradient]}, {"params": self.parameters[2:]}]
        if not info.supports_param_groups:
            groups = [*self.parameters, self.without_gradient]
        self.optimizer: Optimizer = info.optim_cls(groups, **copy.deepcopy(given.kwargs), **flags)
        self.gradients = [[self.draw(p.shape, dtype) for p in self.parameters] for _ in range(STEPS)]

    def draw(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, dtype=dtype, generator=self.generator).to(self.device)

    def loss(self) -> Tensor:
        """For optimizers that call for it: not of second degree."""
        self.optimizer.zero_grad()
        loss = sum((p * p + (p * 3).cos()).sum() for p in self.parameters)
        loss.backward()
        return loss

    def step(self, number: int, closure: bool = False) -> None:
        for p, gradient in zip(self.parameters, self.gradients[number], strict=True):
            p.grad = gradient.clone()
        self.optimizer.step(*([self.loss] if closure else []))
        for group in self.optimizer.param_groups:  # as a scheduler does
            if isinstance(group["lr"], float):
                group["lr"] *= 0.9

    def steps(self, closure: bool = False) -> "Run":
        """One step with a closure is up to twenty evaluations."""
        for number in range(1 if closure else STEPS):
            self.step(number, closure)
        return self

    def values(self) -> dict[str, Any]:
        """Everything that a step may change."""
        result: dict[str, Any] = {f"parameter {i}": p.detach() for i, p in enumerate(self.parameters)}
        result["without gradient"] = self.without_gradient.detach()
        for i, state in self.optimizer.state_dict()["state"].items():
            for key, value in state.items():
                for j, one in enumerate(value if isinstance(value, list) else [value]):
                    result[f"state {i} {key} {j}"] = one
        return result


def check_equal(ours: Run, theirs: Run) -> None:
    actual, expected = ours.values(), theirs.values()
    assert list(actual) == list(expected)
    for name, e in expected.items():
        a = actual[name]
        if not isinstance(e, Tensor):
            assert a == e or (math.isnan(a) and math.isnan(e)), name
            continue
        assert a.device.type == "mojo" or e.dim() == 0, f"{name} is on {a.device}"
        torch.testing.assert_close(a.cpu(), e, rtol=0, atol=0, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}")


class SeenLists(TorchDispatchMode):
    """Whether ops on lists of tensors have run inside."""

    seen = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen |= func._schema.name.startswith("aten::_foreach_")
        return func(*args, **(kwargs or {}))


def check_steps(info, given, implementation, device, dtype=torch.float32) -> None:
    """The CPU's own default is a loop over the parameters, the device's that of an accelerator: lists."""
    flags = FLAGS[implementation]
    try:
        with SeenLists() as lists:
            ours = Run(info, given, flags, device, dtype).steps(info.step_requires_closure)
    except Exception as refusal:
        with pytest.raises(type(refusal)) as theirs:
            Run(info, given, flags, "cpu", dtype).steps(info.step_requires_closure)
        assert str(theirs.value).replace("cpu", "mojo") == str(refusal).replace("cpu", "mojo")
        return
    if implementation == "default" and lists.seen:
        flags = FLAGS["foreach"]
    elif implementation in ("forloop", "foreach"):
        assert lists.seen == (implementation == "foreach")
    check_equal(ours, Run(info, given, flags, "cpu", dtype).steps(info.step_requires_closure))


@pytest.mark.parametrize("info, given, implementation", configurations())
def test_steps_equal_the_cpus(device, info, given, implementation):
    check_steps(info, given, implementation, device)


DTYPES = [torch.float64, torch.bfloat16, torch.float16, torch.complex64]


@pytest.mark.parametrize(
    "info, implementation, dtype",
    [
        pytest.param(info, implementation, dtype, id=f"{info.name}-{implementation}-{dtype}")
        for info in INFOS.values()
        for implementation in implementations(info)
        for dtype in DTYPES
        if has(info, implementation, dtype)
    ],
)
def test_steps_in_other_dtypes(device, info, implementation, dtype):
    check_steps(info, info.optim_inputs_func("cpu")[0], implementation, device, dtype)


def implemented(*leave_out: str) -> list:
    return [
        pytest.param(info, implementation, id=f"{info.name}-{implementation}")
        for info in INFOS.values()
        if info.name not in leave_out
        for implementation in implementations(info)
    ]


@pytest.mark.parametrize("info", INFOS.values(), ids=lambda info: info.name)
def test_the_default_is_the_implementation_on_lists(device, info):
    with SeenLists() as lists:
        Run(info, info.optim_inputs_func("cpu")[0], {}, device).steps(info.step_requires_closure)
    # Adafactor's needs more memory, so torch does not choose it for any device.
    assert lists.seen == ("foreach" in info.supported_impls and info.name != "Adafactor")


@pytest.fixture
def capturable_on_cpu(monkeypatch):
    """Lets the CPU run what torch keeps for accelerators."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.optim.") and hasattr(module, "_get_capturable_supported_devices"):
            supported = [*module._get_capturable_supported_devices(), "cpu"]
            monkeypatch.setattr(module, "_get_capturable_supported_devices", lambda *_, s=supported, **__: s)


@pytest.mark.parametrize("info, given, implementation", configurations("cuda", capturable=True))
def test_capturable_steps(device, capturable_on_cpu, info, given, implementation):
    ours = copy.deepcopy(given)
    ours.kwargs = {
        key: tuple(v.to(device) for v in value)
        if isinstance(value, tuple) and isinstance(value[0], Tensor)
        else value.to(device)
        if isinstance(value, Tensor)
        else value
        for key, value in given.kwargs.items()
    }
    flags = FLAGS[implementation]
    with SeenLists() as lists:
        on_device = Run(info, ours, flags, device).steps()
    if implementation == "default" and lists.seen:
        flags = FLAGS["foreach"]
    for state in on_device.optimizer.state.values():
        assert state["step"].device == device
    check_equal(on_device, Run(info, given, flags, "cpu").steps())


@pytest.mark.parametrize(
    "info", [i for i in INFOS.values() if "differentiable" in i.supported_impls], ids=lambda info: info.name
)
def test_differentiable_steps(device, info):
    """Gradients of a step with respect to the parameters and the gradients that it is given."""

    def run(where: torch.device | str) -> list[Tensor]:
        generator = torch.Generator().manual_seed(6)
        leaves = [torch.rand(s, generator=generator).to(where).requires_grad_() for s in [(4, 3), (5,)]]
        gradients = [torch.rand(leaf.shape, generator=generator).to(where).requires_grad_() for leaf in leaves]
        parameters = [leaf.clone() for leaf in leaves]
        for p, gradient in zip(parameters, gradients, strict=True):
            p.retain_grad()
            p.grad = gradient * 2
        optimizer = info.optim_cls(parameters, differentiable=True)
        optimizer.step()
        sum((p**2).sum() for p in parameters).backward(inputs=[*leaves, *gradients])
        return [*(p.detach() for p in parameters), *(t.grad for t in [*leaves, *gradients])]

    for a, e in zip(run(device), run("cpu"), strict=True):
        torch.testing.assert_close(a.cpu(), e, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("info, implementation", implemented(*ASKING))
def test_a_step_does_not_wait(device, info, implementation):
    """Neither the first, which makes the state, nor the next; behind a gate nothing can be complete by luck."""
    # A mask without dimensions, as Rprop makes of such a parameter, is read by torch's indexing.
    shapes = [s for s in shapes_for(info) if s or info.name != "Rprop"]
    run = Run(info, info.optim_inputs_func("cpu")[0], FLAGS[implementation], device, shapes=shapes)
    torch.accelerator.synchronize()
    with Gate(timeout=30), assert_no_host_wait():
        run.step(0)
        run.step(1)
        run.optimizer.zero_grad(set_to_none=False)


@pytest.mark.parametrize("info, implementation", implemented())
def test_state_of_the_cpu_goes_on_on_the_device(device, info, implementation):
    """A checkpoint of a CPU run, loaded."""
    given, closure = info.optim_inputs_func("cpu")[0], info.step_requires_closure
    theirs, ours = (Run(info, given, FLAGS[implementation], where) for where in ("cpu", device))
    theirs.step(0, closure)
    with torch.no_grad():
        for a, e in zip(ours.parameters, theirs.parameters, strict=True):
            a.copy_(e)
    ours.optimizer.load_state_dict(copy.deepcopy(theirs.optimizer.state_dict()))
    for number in (1, 2):
        theirs.step(number, closure)
        ours.step(number, closure)
    check_equal(ours, theirs)


@pytest.mark.parametrize("implementation", ["forloop", "foreach", "fused"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_scaled_gradients(device, name, implementation):
    """GradScaler: the second step has an infinity in a gradient and is left out; the scale goes down."""

    def run(where: torch.device | str) -> tuple[Run, torch.amp.GradScaler]:
        made = Run(INFOS[name], OptimizerInput(None, {"lr": 0.01}), FLAGS[implementation], where)
        scaler = torch.amp.GradScaler(torch.device(where).type, init_scale=4.0, growth_interval=2)
        for number in range(STEPS):
            scaler.scale(torch.ones((), device=where))  # makes the scale
            for p, gradient in zip(made.parameters, made.gradients[number], strict=True):
                p.grad = gradient * 4
            if number == 1:
                made.parameters[0].grad[2, 3] = torch.inf
            scaler.step(made.optimizer)
            scaler.update()
        return made, scaler

    (ours, our_scaler), (theirs, their_scaler) = run(device), run("cpu")
    check_equal(ours, theirs)
    assert our_scaler.state_dict() == their_scaler.state_dict()


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_a_fused_step_with_scaled_gradients_does_not_wait(device, name):
    run = Run(INFOS[name], OptimizerInput(None, {"lr": 0.01}), FLAGS["fused"], device)
    scaler = torch.amp.GradScaler(device.type)
    torch.accelerator.synchronize()
    with Gate(timeout=30), assert_no_host_wait():
        scaler.scale(torch.ones((), device=device))
        for p, gradient in zip(run.parameters, run.gradients[0], strict=True):
            p.grad = gradient
        scaler.step(run.optimizer)
        scaler.update()


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("norm_type", [1.0, 2.0, torch.inf])
def test_clipped_gradients(device, norm_type, foreach):
    def run(where: torch.device | str) -> list[Tensor]:
        made = Run(INFOS["SGD"], OptimizerInput(None, {}), {}, where, shapes=[(10, 7), (7,), (), (5000,)])
        for p, gradient in zip(made.parameters, made.gradients[0], strict=True):
            p.grad = gradient.clone()
        total = torch.nn.utils.clip_grad_norm_(made.parameters, 0.5, norm_type, foreach=foreach)
        torch.nn.utils.clip_grad_value_(made.parameters, 0.01, foreach=foreach)
        return [total, *(p.grad for p in made.parameters)]

    with Gate(timeout=30), assert_no_host_wait():
        ours = run(device)
    for a, e in zip(ours, run("cpu"), strict=True):
        assert torch.equal(a.cpu(), e)


def test_sparse_gradients_are_refused(device):
    """The device has no sparse tensors: one clear error, and no wrong value."""
    table = torch.nn.Embedding(5, 3, sparse=True, device=device)
    torch.optim.SparseAdam(table.parameters())
    with pytest.raises(NotImplementedError, match="sparse"):
        table(torch.tensor([1, 2], device=device)).sum().backward()
