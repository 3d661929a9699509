"""torch's database of ops as pairs of an op and a dtype, and how a sample is run on the CPU and on the device.

The inputs of both runs have the same bytes, strides and aliases, so the results can be compared bit for bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import pathlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils import _pytree as pytree

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
SEED = 20260301


@dataclasses.dataclass(frozen=True)
class Pair:
    op: OpInfo
    dtype: torch.dtype

    @property
    def name(self) -> str:
        variant = f".{self.op.variant_test_name}" if self.op.variant_test_name else ""
        return f"{self.op.name}{variant}-{str(self.dtype).removeprefix('torch.')}"


def pairs(*dtypes: torch.dtype) -> list[Pair]:
    """The pairs that CPU supports, of all five dtypes or of those given."""
    return [Pair(op, d) for op in op_db for d in dtypes or DTYPES if d in op.supported_dtypes("cpu")]


def in_sample(pair: Pair, share: float) -> bool:
    """Whether the pair belongs to a stratified sample: the same share of each dtype's ops, always the same ones."""
    digest = hashlib.sha256(pair.name.encode()).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


def parameters(pairs: list[Pair], share: float) -> list[Any]:
    """The pairs for a parametrised test, all but that share of them marked slow."""
    return [pytest.param(p, id=p.name, marks=() if in_sample(p, share) else pytest.mark.slow) for p in pairs]


# --- exceptions: what is known to differ, one tracked table ---


@functools.cache
def exceptions(check: str) -> dict[str, str]:
    """The pairs that are excepted from a check, and why; see op_exceptions.txt."""
    result = {}
    path = pathlib.Path(__file__).with_name("op_exceptions.txt")
    for number, line in enumerate(path.read_text().splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        kind, name, *reason = line.split(None, 2)
        if not reason:
            raise ValueError(f"{path.name}:{number}: no reason is given")
        if kind == check:
            result[name] = reason[0]
    return result


# --- inputs ---


class Mover:
    """Copies tensors to a device with their strides, offsets, lazy bits and aliases."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._storages: dict[int, torch.Tensor] = {}
        self._tensors: dict[int, torch.Tensor] = {}
        self._kept: list[Any] = []  # ids stay unique while their objects live

    def __call__(self, value: Any) -> Any:
        return pytree.tree_map(self._one, value)

    def _one(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._tensors:
                self._kept.append(value)
                self._tensors[id(value)] = self._tensor(value)
            return self._tensors[id(value)]
        if isinstance(value, torch.device):
            return self.device
        if isinstance(value, str) and value == "cpu":
            return str(self.device)
        return value

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type != "cpu":
            return tensor
        if (
            tensor.layout != torch.strided
            or tensor.is_quantized
            or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        ):
            return tensor.detach().clone().to(self.device)
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._storages:
            flat = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._kept.append(storage)
            self._storages[key] = flat.to(self.device, copy=True)
        with torch.no_grad():
            moved = torch.empty(0, dtype=tensor.dtype, device=self.device).set_(
                self._storages[key].untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride()
            )
            if tensor.is_conj():
                moved = moved.conj()
            if tensor.is_neg():
                moved = torch._neg_view(moved)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(moved, tensor.requires_grad)
        return moved.requires_grad_(tensor.requires_grad) if tensor.is_leaf else moved


# --- outcomes ---


@dataclasses.dataclass
class Outcome:
    """What a call gave: its results, leaf by leaf, on the CPU; or what it raised."""

    results: list[Leaf] = dataclasses.field(default_factory=list)
    gradients: list[Leaf] = dataclasses.field(default_factory=list)
    error: Exception | None = None


class Leaf:
    """A result as it was on its device (`form`) and its value on the CPU."""

    def __init__(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self.form: Any = (tuple(value.shape), value.dtype, value.layout)
            # Where they mean anything.
            self.strides = [
                stride for size, stride in zip(value.shape, _strides(value), strict=False) if size > 1 and value.numel()
            ]
            self.value = value.detach().to("cpu")
        else:
            self.form = self.value = value
            self.strides = []


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    return tensor.stride() if tensor.layout == torch.strided else ()


def synchronize(device: torch.device) -> None:
    if device.type == "mojo":
        torch.accelerator.synchronize(device)


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def arguments_of(sample: Any, device: torch.device) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copies of a sample's arguments, positional and by keyword, on a device."""
    return Mover(device)(((sample.input, *sample.args), sample.kwargs))


def outcome_of(run: Callable[[], tuple[list[Any], list[Any]]], device: torch.device) -> Outcome:
    """What `run` gives, results and gradients, leaf by leaf; waits for it."""
    outcome = Outcome()
    torch.manual_seed(SEED)
    try:
        with unwarned():
            results, found = run()
            outcome.gradients = [Leaf(x) for x in found]
            outcome.results = [Leaf(x) for x in results]
            synchronize(device)
    except Exception as error:
        outcome.error = error
    return outcome


def call(op: OpInfo | Callable[..., Any], sample: Any, device: torch.device, *, backward: bool = False) -> Outcome:
    """Runs one sample on a device; waits for it, and returns CPU copies of what came out."""

    def run() -> tuple[list[Any], list[Any]]:
        args, kwargs = arguments_of(sample, device)  # may be refused too, for its layout
        result = op(*args, **kwargs)
        if not backward:
            return pytree.tree_leaves(result), []
        leaves = pytree.tree_leaves(sample.output_process_fn_grad(result))
        return leaves, gradients(leaves, (args, kwargs), device)

    return outcome_of(run, device)


def gradients(leaves: list[Any], inputs: Any, device: torch.device) -> list[Any]:
    outputs = [x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    wanted = [x for x in pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not outputs or not wanted:
        return []
    generator = torch.Generator().manual_seed(SEED)
    given = [torch.randn(x.shape, dtype=x.dtype, generator=generator).to(device) for x in outputs]
    found = torch.autograd.grad(outputs, wanted, given, allow_unused=True)
    return list(found)


# --- comparison ---


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two CPU tensors of one shape and dtype hold the same bits; any NaN equals any other."""
    if a.layout != torch.strided or b.layout != torch.strided or a.is_quantized:
        return torch.equal(a.to_dense(), b.to_dense()) if a.layout == b.layout and not a.is_quantized else False
    a, b = a.resolve_conj().resolve_neg().contiguous(), b.resolve_conj().resolve_neg().contiguous()
    if a.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    if a.dtype.is_floating_point and a.dtype.itemsize in (2, 4, 8):
        integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.dtype.itemsize]
        equal = a.view(integer) == b.view(integer)
        return bool((equal | (a.isnan() & b.isnan())).all())
    return torch.equal(a, b)


class Difference(AssertionError):
    """Two outcomes are not the same. `kind` says how far apart they are:

    "strides": equal bit for bit, with other strides; "close": within the tolerance; "values": further apart than that.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def tolerance(pair: Pair) -> dict[str, float]:
    """What op_db grants this pair, or what torch's comparison grants the dtype."""
    for decorator in pair.op.decorators or ():
        override = getattr(getattr(decorator, "tolerance_override", decorator), "d", None)
        if isinstance(override, dict) and pair.dtype in override:
            return {"atol": override[pair.dtype].atol, "rtol": override[pair.dtype].rtol}
    rtol, atol = torch.testing._comparison.default_tolerances(pair.dtype)
    return {"atol": atol, "rtol": rtol}


def compare(pair: Pair, what: str, expected: list[Leaf], actual: list[Leaf], *, values: bool = True) -> None:
    """Raises Difference where shapes, dtypes, values or strides are not the same."""
    forms = [leaf.form for leaf in expected], [leaf.form for leaf in actual]
    if forms[0] != forms[1]:
        raise Difference("values", f"{what}: the CPU gives {forms[0]}, the device {forms[1]}")
    close = False
    for e, a in zip((leaf.value for leaf in expected), (leaf.value for leaf in actual), strict=True):
        if not values or not isinstance(e, torch.Tensor) or same_bits(e, a):
            continue
        try:
            torch.testing.assert_close(a, e, equal_nan=True, **tolerance(pair))
        except AssertionError as error:
            raise Difference("values", f"{what}: {error}") from None
        close = True
    if close:
        raise Difference("close", f"{what}: equal within the tolerance, not bit for bit")
    strides = [leaf.strides for leaf in expected], [leaf.strides for leaf in actual]
    if strides[0] != strides[1]:
        raise Difference("strides", f"{what}: the CPU gives strides {strides[0]}, the device {strides[1]}")


def is_uninitialised(op: OpInfo) -> bool:
    return "empty" in op.name


@contextlib.contextmanager
def shifted_seeds(shift: int) -> Iterator[None]:
    """Inside, torch.manual_seed gives other numbers; some entries of the database seed within the op."""
    original = torch.manual_seed
    torch.manual_seed = lambda seed: original(seed + shift)  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.manual_seed = original  # type: ignore[assignment]


def is_random(pair: Pair, sample: Any) -> bool:
    """Whether the result depends on the seed, by a few runs on the CPU."""
    if "fractional_max_pool" in pair.op.name:
        return True  # on few seeds only, where a drawn number is rounded
    cpu = torch.device("cpu")
    first = call(pair.op, sample, cpu)
    for shift in range(1, 6):
        with shifted_seeds(shift):
            other = call(pair.op, sample, cpu)
        try:
            compare(pair, "result", first.results, other.results)
        except Difference:
            return True
    return False


def samples(pair: Pair, *, requires_grad: bool = False) -> list[Any]:
    torch.manual_seed(SEED)
    return list(pair.op.sample_inputs("cpu", pair.dtype, requires_grad=requires_grad))


def error_samples(op: OpInfo) -> Iterator[Any]:
    torch.manual_seed(SEED)
    yield from op.error_inputs("cpu")
