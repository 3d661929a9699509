"""In-place variants and `out=` over torch's database of ops: results and errors are the CPU's."""

from __future__ import annotations

from collections.abc import Callable

import opinfo
import pytest
import torch
from opinfo import Outcome, Pair, arguments_of, compare, outcome_of, parameters, unwarned
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo
from torch.utils import _pytree as pytree

CPU = torch.device("cpu")
SHARE = 0.05
SAMPLES = 4  # of each op

FLOAT_PAIRS = opinfo.pairs(torch.float32)
IN_PLACE_PAIRS = [pair for pair in FLOAT_PAIRS if pair.op.inplace_variant is not None]
OUT_PAIRS = [pair for pair in FLOAT_PAIRS if pair.op.supports_out and pair.name not in opinfo.exceptions("refused")]


def check(pair: Pair, what: str, sample: object, run: Callable[[torch.device], Outcome], device: torch.device) -> None:
    expected, actual = run(CPU), run(device)
    assert type(expected.error) is type(actual.error), (
        f"{what}: the CPU: {expected.error!r}, the device: {actual.error!r}"
    )
    if expected.error is None:
        values = not opinfo.is_uninitialised(pair.op) and not opinfo.is_random(pair, sample)
        try:
            compare(pair, what, expected.results, actual.results, values=values)
        except opinfo.Difference as difference:
            if pair.name not in opinfo.exceptions("out-strides") or difference.kind != "strides":
                raise


@pytest.mark.parametrize("pair", parameters(IN_PLACE_PAIRS, SHARE))
def test_in_place(pair: Pair, device: torch.device) -> None:
    def run(sample: object, place: torch.device) -> Outcome:
        args, kwargs = arguments_of(sample, place)
        return outcome_of(lambda: (pytree.tree_leaves(pair.op.inplace_variant(*args, **kwargs)), []), place)

    for sample in opinfo.samples(pair)[:SAMPLES]:
        check(pair, "in place", sample, lambda place, sample=sample: run(sample, place), device)


def exact(like: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like)


def empty(like: torch.Tensor) -> torch.Tensor:
    return like.new_empty(0)


def with_gaps(like: torch.Tensor) -> torch.Tensor:
    """Every other element of a larger tensor."""
    return like.new_zeros((*like.shape, 2))[..., 0]


def integral(like: torch.Tensor) -> torch.Tensor:
    """A dtype that no floating-point result fits in."""
    return torch.zeros_like(like, dtype=torch.int32)


def one_place(like: torch.Tensor) -> torch.Tensor:
    """All elements are the same place in memory."""
    return like.new_zeros(1).expand(like.shape) if like.dim() else like.new_zeros(())


# Ops whose kernels look at the strides of their outputs.
CAREFUL = (UnaryUfuncInfo, BinaryUfuncInfo, ReductionOpInfo)
OUTPUTS = (exact, empty, with_gaps, integral, one_place)


@pytest.mark.parametrize("make_output", OUTPUTS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("pair", parameters(OUT_PAIRS, SHARE))
def test_out(pair: Pair, make_output: Callable[[torch.Tensor], torch.Tensor], device: torch.device) -> None:
    if make_output is one_place and not isinstance(pair.op, CAREFUL):
        pytest.skip("core's kernel may write past the one place, on the CPU too")

    def run(sample: object, place: torch.device) -> Outcome:
        args, kwargs = arguments_of(sample, place)
        with unwarned():
            results = pair.op(*args, **kwargs)
        out = pytree.tree_map(lambda x: make_output(x) if isinstance(x, torch.Tensor) else x, results)
        opinfo.synchronize(place)
        return outcome_of(lambda: (pytree.tree_leaves(pair.op(*args, out=out, **kwargs)), []), place)

    if pair.name in opinfo.exceptions(f"out-{make_output.__name__}"):
        pytest.xfail(opinfo.exceptions(f"out-{make_output.__name__}")[pair.name])
    for sample in opinfo.samples(pair)[:SAMPLES]:
        if not all(
            isinstance(x, torch.Tensor)
            for x in pytree.tree_leaves(pair.op(sample.input, *sample.args, **sample.kwargs))
        ):
            continue
        check(pair, f"out, {make_output.__name__}", sample, lambda place, sample=sample: run(sample, place), device)


@pytest.mark.parametrize(
    "pair", parameters([pair for pair in OUT_PAIRS if pair.name not in opinfo.exceptions("out-device")], SHARE)
)
def test_out_on_another_device_is_refused(pair: Pair, device: torch.device) -> None:
    for sample in opinfo.samples(pair)[:1]:
        args, kwargs = arguments_of(sample, device)
        if not any(isinstance(x, torch.Tensor) for x in pytree.tree_leaves((args, kwargs))):
            pytest.skip("no input is on a device")
        with unwarned():
            results = pair.op(*args, **kwargs)
            if not all(isinstance(x, torch.Tensor) for x in (results if isinstance(results, tuple) else [results])):
                pytest.skip("gives something else than tensors")
            out = pytree.tree_map(lambda x: x.to("cpu"), results)
            with pytest.raises(RuntimeError):
                pair.op(*args, out=out, **kwargs)
                torch.accelerator.synchronize()
