"""Autocast on the device, by CUDA's lists of ops, and the gradient scaler."""

import collections
import copy
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from helpers import in_thread
from torch import nn
from torch.testing._internal.autocast_test_lists import AutocastTestLists
from torch_mojo_backend.testing import Gate, assert_no_host_wait, schedule

DTYPES = [torch.bfloat16, torch.float16]

# --- the lists ---

# Each with the module that has its ops, and the dtype that they run in and give (None: the one of autocast).
LISTS: dict[str, tuple[Any, torch.dtype | None]] = {
    "torch_fp16": (torch, None),
    "torch_fp32": (torch, torch.float32),
    "torch_need_autocast_promote": (torch, torch.float32),
    "torch_expect_builtin_promote": (torch, torch.float32),
    "methods_expect_builtin_promote": (None, torch.float32),
    "nn_fp16": (torch._C._nn, None),
    "nn_fp32": (torch._C._nn, torch.float32),
    "linalg_fp16": (torch._C._linalg, None),
    "methods_fp16": (None, None),
    "methods_fp32": (None, torch.float32),
}
# Kernels of CUDA, Python 2's name of an operator, and an entry whose arguments do not fit.
LEFT_OUT = ("cudnn_convolution", "cudnn_convolution_transpose", "__div__", "einsum")


def cases(lists: AutocastTestLists) -> Iterator[tuple[str, Any]]:
    for name in LISTS:
        for entry in getattr(lists, name):
            if entry[0] not in LEFT_OUT:
                yield name, entry


CASES = [(name, entry[0], i) for i, (name, entry) in enumerate(cases(AutocastTestLists("cpu")))]


@pytest.fixture(scope="module")
def entries() -> list[Any]:
    torch.manual_seed(0)
    return [entry for _, entry in cases(AutocastTestLists("mojo"))]


def cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, collections.abc.Iterable):
        return type(value)(cast(element, dtype) for element in value)
    return value


def with_bfloat16(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.bfloat16() if value.dtype == torch.float16 else value
    return type(value)(map(with_bfloat16, value)) if isinstance(value, tuple | list) else value


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("which", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}")
def test_ops_run_in_the_dtype_that_cudas_lists_say(entries, which, dtype):
    list_name, op, index = which
    module, run_as = LISTS[list_name][0], LISTS[list_name][1] or dtype
    _, args, *rest = entries[index]
    if dtype == torch.bfloat16:  # the lists are written for float16
        args = with_bfloat16(args)
    kwargs = next((extra for extra in rest if isinstance(extra, dict)), {})
    gives = next((extra for extra in rest if isinstance(extra, torch.dtype)), run_as)
    calls: list[Callable] = []
    if module is not None and hasattr(module, op):
        calls.append(lambda args: getattr(module, op)(*args, **kwargs))
    if hasattr(torch.Tensor, op):
        calls.append(lambda args: getattr(args[0], op)(*args[1:], **kwargs))
    assert calls
    for call in calls:
        with torch.autocast("mojo", dtype=dtype):
            found = call(args)
            with torch.autocast("mojo", enabled=False):
                expected = call(cast(args, run_as) if "builtin" not in list_name else args)
        for actual, value in zip(*map(flat, (found, expected)), strict=True):
            if isinstance(actual, torch.Tensor):
                assert actual.dtype == gives
                assert torch.equal(actual.nan_to_num(), value.nan_to_num())
            else:
                assert actual == value


def test_the_lists_are_cudas():
    def listed(key: str) -> set[str]:
        names = torch._C._dispatch_get_all_op_names()
        return {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)}

    assert listed("AutocastCUDA") - listed("AutocastPrivateUse1") <= {
        "aten::cudnn_convolution",
        "aten::cudnn_convolution_transpose",
    }
    assert listed("AutocastPrivateUse1") <= listed("AutocastCUDA")


def test_a_matrix_product_by_einsum(device):
    x = torch.ones(2, 2, device=device)
    with torch.autocast("mojo", dtype=torch.bfloat16):
        assert torch.einsum("ij,jk->ik", x, x).dtype == torch.bfloat16


def test_what_is_unsafe_is_refused(device):
    x = torch.rand(4, device=device)
    with torch.autocast("mojo", dtype=torch.float16):
        with pytest.raises(RuntimeError, match="binary_cross_entropy is unsafe to autocast"):
            F.binary_cross_entropy(x, x)
        with torch.autocast("mojo", enabled=False):
            F.binary_cross_entropy(x, x)
        F.binary_cross_entropy_with_logits(x, x)


# --- the mode ---


def test_the_mode_is_that_of_the_device_type(device):
    x = torch.ones(2, 2, device=device)
    assert not torch.is_autocast_enabled("mojo")
    with torch.autocast("mojo"):
        assert torch.is_autocast_enabled("mojo") and not torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("mojo") == torch.float16 == (x @ x).dtype
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    with torch.autocast("cpu"):
        assert (x @ x).dtype == torch.float32
    with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        with torch.autocast("mojo", enabled=False):
            assert (x @ x).dtype == torch.float32
        with torch.autocast("mojo", dtype=torch.float16):
            assert (x @ x).dtype == torch.float16
        assert (x @ x).dtype == torch.bfloat16
        assert (x.double() @ x.double()).dtype == torch.float64, "autocast leaves float64 alone"
        assert (x.long() + x.long()).dtype == torch.int64
    assert torch.amp.is_autocast_available("mojo")


def test_the_mode_belongs_to_the_thread(device):
    x = torch.ones(2, 2, device=device)
    with torch.autocast("mojo", dtype=torch.bfloat16):
        assert in_thread(lambda: (x @ x).dtype) == torch.float32
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with torch.autocast("mojo", dtype=torch.bfloat16):
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=other)
    thread.start()
    assert entered.wait(30)
    assert (x @ x).dtype == torch.float32
    leave.set()
    thread.join()


def test_a_dtype_that_autocast_has_not(device):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autocast("mojo", dtype=torch.float32):
            assert not torch.is_autocast_enabled("mojo")
            x = torch.ones(2, 2, device=device)
            assert (x @ x).dtype == torch.float32
    assert any("mojo" in str(w.message) and "Autocast" in str(w.message) for w in caught)


def test_casts_of_parameters_are_cached_within_the_block(device):
    linear, x = nn.Linear(4, 4).to(device), torch.ones(2, 4, device=device)

    def copies(times: int, cache: bool) -> int:
        with torch.autocast("mojo", dtype=torch.bfloat16, cache_enabled=cache):
            y = x.bfloat16()
            torch.mojo.reset_op_counts()
            for _ in range(times):
                linear(y)
        return torch.mojo.op_counts()["aten::_copy_from"].queued

    assert copies(3, True) == 2 and copies(3, False) == 6


def test_custom_functions_choose_their_dtype(device):
    seen = []

    class Half(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="mojo", cast_inputs=torch.float16)
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            seen.append((x.dtype, torch.is_autocast_enabled("mojo")))
            ctx.save_for_backward(x)
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="mojo")
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            seen.append((gradient.dtype, torch.is_autocast_enabled("mojo")))
            return gradient @ x

    x = torch.ones(2, 2, device=device, requires_grad=True)
    with torch.autocast("mojo", dtype=torch.bfloat16):
        out = Half.apply(x)
    out.sum().backward()
    assert seen == [(torch.float16, False), (torch.float16, False)] and x.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks(device, cell, dtype):
    torch.manual_seed(0)
    network, x = cell(4, 5), torch.randn(3, 2, 4)
    expected = network(x)[0]
    network.to(device)
    with torch.autocast("mojo", dtype=dtype):
        out = network(x.to(device))[0]
    assert out.dtype == dtype
    out.float().sum().backward()
    torch.testing.assert_close(out.float().cpu(), expected, rtol=0.05, atol=0.05)
    assert all(p.grad.dtype == torch.float32 for p in network.parameters())


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LayerNorm(144), nn.Linear(144, 3)
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_training_under_autocast_stays_close(device, dtype):
    x, target = torch.randn(16, 1, 8, 8, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 3
    losses = []
    for place, enabled in (("cpu", False), (device, True)):
        model = small_network().to(place)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("mojo", enabled=enabled and dtype == torch.float16, init_scale=128.0)
        losses.append([])
        for _ in range(8):
            optimizer.zero_grad()
            with torch.autocast("mojo", dtype=dtype, enabled=enabled):
                loss = F.cross_entropy(model(x.to(place)), target.to(place))
            assert loss.dtype == torch.float32
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses[-1].append(loss.item())
    assert losses[1][-1] < losses[1][0]
    assert torch.allclose(*map(torch.tensor, losses), rtol=0.05, atol=0.02), losses


def test_an_autocast_step_is_queued_without_a_wait(device):
    model = small_network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, target = torch.randn(4, 1, 8, 8, device=device), torch.tensor([0, 1, 2, 0], device=device)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("mojo", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()

    step()
    torch.accelerator.synchronize()
    with Gate(), assert_no_host_wait():
        step()


# --- GradScaler ---


class Pair:
    """The same parameter, optimizer and scaler on the CPU and on the device."""

    def __init__(self, device: torch.device, make: Callable[..., torch.optim.Optimizer], **settings: Any) -> None:
        self.places = [torch.device("cpu"), device]
        self.parameters = [nn.Parameter(torch.arange(1.0, 5.0, device=place)) for place in self.places]
        self.optimizers = [make([p]) for p in self.parameters]
        self.scalers = [torch.amp.GradScaler(place.type, **settings) for place in self.places]

    def each(self) -> Iterator[tuple[nn.Parameter, torch.optim.Optimizer, torch.amp.GradScaler]]:
        return zip(self.parameters, self.optimizers, self.scalers, strict=True)

    def step(self, factor: float) -> None:
        for p, optimizer, scaler in self.each():
            optimizer.zero_grad()
            scaler.scale((p * factor).square().sum()).backward()
            scaler.step(optimizer)
            scaler.update()

    def check(self) -> None:
        assert torch.equal(self.parameters[1].cpu(), self.parameters[0])
        assert self.scalers[1].state_dict() == self.scalers[0].state_dict()


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, foreach=False),
    "sgd foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "sgd fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_scaler_steps_skips_and_grows_as_on_the_cpu(device, optimizer):
    pair = Pair(
        device, OPTIMIZERS[optimizer], init_scale=4.0, growth_factor=2.0, backoff_factor=0.25, growth_interval=2
    )
    scales = []
    for factor in (1.0, 0.5, float("inf"), 1.0, float("nan"), 0.1, 0.1):
        before = pair.parameters[1].detach().cpu()
        pair.step(factor)
        pair.check()
        scales.append(pair.scalers[1].get_scale())
        assert torch.equal(pair.parameters[1].detach().cpu(), before) == (factor != factor or factor == float("inf"))
    assert scales == [4.0, 8.0, 2.0, 2.0, 0.5, 0.5, 1.0]


def test_unscaled_gradients_may_be_clipped_before_the_step(device):
    pair = Pair(device, OPTIMIZERS["sgd"], init_scale=1024.0)
    for p, optimizer, scaler in pair.each():
        scaler.scale((p * 100).sum()).backward()
        scaler.unscale_(optimizer)
        assert p.grad.tolist() == [100.0] * 4
        nn.utils.clip_grad_norm_([p], 1.0)
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        with pytest.raises(AssertionError, match="No inf checks were recorded"):
            scaler.update()
    pair.check()


def test_the_scale_lives_on_the_device_and_scales_lists_of_tensors(device, other):
    scaler = torch.amp.GradScaler("mojo", init_scale=8.0)
    scaled = scaler.scale([torch.ones(2, device=device), torch.ones(1, device=other)])
    assert [s.device for s in scaled] == [device, other] and [s.tolist() for s in scaled] == [[8.0, 8.0], [8.0]]
    assert scaler._scale.device == device


def test_gradients_of_several_dtypes_and_devices(device, other):
    parameters = [
        nn.Parameter(torch.ones(2, device=place, dtype=dtype))
        for place in (device, other)
        for dtype in (torch.float32, torch.bfloat16, torch.float64)
    ]
    optimizer = torch.optim.SGD(parameters, lr=1.0)
    scaler = torch.amp.GradScaler("mojo", init_scale=4.0)
    scaler.scale(torch.ones((), device=device))
    for bad in (False, True):
        for p in parameters:
            p.grad = torch.full_like(p, 2.0)
        if bad:
            parameters[-1].grad[1] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        assert all(p.tolist() == [0.5, 0.5] for p in parameters)
    assert scaler.get_scale() == 2.0


def test_state_of_the_scaler(device):
    pair = Pair(device, OPTIMIZERS["sgd"], init_scale=4.0, growth_interval=2)
    pair.step(1.0)
    state = copy.deepcopy(pair.scalers[1].state_dict())
    assert state == pair.scalers[0].state_dict() and state["scale"] == 4.0 and state["_growth_tracker"] == 1
    restored = torch.amp.GradScaler("mojo")
    restored.load_state_dict(state)
    pair.scalers[1] = restored
    pair.step(1.0)
    pair.check()
    assert restored.get_scale() == 8.0
    assert torch.amp.GradScaler("mojo", enabled=False).state_dict() == {}


def test_a_new_scale_is_set(device):
    scaler = torch.amp.GradScaler("mojo", init_scale=4.0)
    scaler.scale(torch.ones((), device=device))
    scaler.update(3.0)
    assert scaler.get_scale() == 3.0
    scaler.update(torch.tensor(5.0, device=device))
    assert scaler.get_scale() == 5.0


@pytest.mark.parametrize("optimizer,waits", [("sgd foreach", 1), ("sgd fused", 0), ("adamw fused", 0)])
def test_the_host_waits_as_often_as_with_cuda(device, optimizer, waits):
    """Once a step, to learn whether to take it; not at all if the optimizer's kernel is told instead."""
    p = nn.Parameter(torch.ones(4, device=device))
    made = OPTIMIZERS[optimizer]([p])
    scaler = torch.amp.GradScaler("mojo", init_scale=4.0)

    def step() -> None:
        scaler.scale(p.sum()).backward()
        scaler.step(made)
        scaler.update()

    step()
    torch.mojo.reset_op_counts()
    step()
    counts = torch.mojo.op_counts()
    assert {name: count.inline for name, count in counts.items() if count.inline} == (
        {"aten::_local_scalar_dense": 1} if waits else {}
    )
    assert counts["aten::_amp_update_scale_"].queued == 1


@pytest.mark.parametrize("seed", range(5))
def test_scaled_training_under_an_adversarial_schedule(device, seed):
    side = torch.Stream(device)
    pair = Pair(device, OPTIMIZERS["adamw fused"], init_scale=4.0, growth_interval=2)
    with schedule(seed), side:
        for factor in (1.0, float("inf"), 0.5, 0.5):
            pair.step(factor)
    pair.check()
