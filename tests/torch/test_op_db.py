"""torch's database of ops: values, gradients and errors are the CPU's, and calls return while the stream is held.

`make test` runs a sample, the same share of each dtype's ops; `make test-all` runs all. op_exceptions.txt is the table
of what is known to differ.
"""

from __future__ import annotations

import opinfo
import pytest
import torch
from opinfo import Difference, Pair, arguments_of, call, compare, parameters, unwarned
from torch_mojo_backend.testing import Gate, host_waits, schedule

CPU = torch.device("cpu")
SHARE = 0.1  # of the pairs in the sample
SEEDS = range(20)
PARTS = 4  # of all pairs, so that a test takes a minute

PAIRS = opinfo.pairs()
GRADIENT_PAIRS = [pair for pair in opinfo.pairs(torch.float32) if pair.op.supports_autograd]
ERROR_PAIRS = [Pair(op, torch.float32) for op in opinfo.op_db if op.error_inputs_func is not None]


def check_sample(pair: Pair, sample: object, device: torch.device, *, backward: bool) -> None:
    """Raises Difference, with the kind "refused" if the device has raised where the CPU has not."""
    expected = call(pair.op, sample, CPU, backward=backward)
    actual = call(pair.op, sample, device, backward=backward)
    if expected.error is not None or actual.error is not None:
        if type(expected.error) is not type(actual.error):
            raise Difference("refused", f"the CPU: {expected.error!r}, the device: {actual.error!r}")
        return
    uninitialised = opinfo.is_uninitialised(pair.op)
    try:
        compare(pair, "result", expected.results, actual.results, values=not uninitialised)
        compare(pair, "gradient", expected.gradients, actual.gradients)
    except Difference as difference:
        if difference.kind == "strides" or not opinfo.is_random(pair, sample):
            raise
        check_random(pair, sample, device, expected, actual, backward=backward)


def check_random(
    pair: Pair,
    sample: object,
    device: torch.device,
    expected: opinfo.Outcome,
    actual: opinfo.Outcome,
    *,
    backward: bool,
) -> None:
    """Random results: the CPU's shapes and dtypes, the same values again for the same seed, whatever the schedule."""
    compare(pair, "result", expected.results, actual.results, values=False)
    compare(pair, "gradient", expected.gradients, actual.gradients, values=False)
    with schedule(7):
        again = call(pair.op, sample, device, backward=backward)
    assert again.error is None, again.error
    compare(pair, "repeated result", actual.results, again.results)
    compare(pair, "repeated gradient", actual.gradients, again.gradients)


def check_pair(pair: Pair, device: torch.device, *, backward: bool = False) -> None:
    prefix = "gradient-" if backward else ""
    known = {
        kind: opinfo.exceptions(prefix + kind).get(pair.name) for kind in ("refused", "differs", "close", "strides")
    }
    found: dict[str, Difference] = {}
    for sample in opinfo.samples(pair, requires_grad=backward):
        try:
            check_sample(pair, sample, device, backward=backward)
        except Difference as difference:
            kind = "differs" if difference.kind == "values" else difference.kind
            if kind == "close" and (known["differs"] or pair.name in opinfo.exceptions(prefix + "unsteady")):
                continue
            if known[kind] is None:
                raise
            found[kind] = difference
    passed = [kind for kind, reason in known.items() if reason is not None and kind not in found]
    assert not passed, f"{pair.name} is listed under {passed} and passes: take it out of op_exceptions.txt"
    if "refused" in found:
        assert str(found["refused"]).strip()
        pytest.xfail(f"{known['refused']}: {found['refused']}")


@pytest.mark.parametrize("pair", parameters(PAIRS, SHARE))
def test_values(pair: Pair, device: torch.device) -> None:
    check_pair(pair, device)


@pytest.mark.parametrize("pair", parameters(GRADIENT_PAIRS, SHARE))
def test_gradients(pair: Pair, device: torch.device) -> None:
    check_pair(pair, device, backward=True)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("seed", SEEDS)
def test_values_and_gradients_under_a_schedule(seed: int, part: int, device: torch.device) -> None:
    """Each seed takes another sample of every pair, on a stream of its own that the upload's stream does not wait for."""
    with schedule(seed):
        for pair in PAIRS[part::PARTS]:
            if any(pair.name in opinfo.exceptions(kind) for kind in ("refused", "differs")):
                continue
            backward = pair.dtype == torch.float32 and pair.op.supports_autograd
            if backward and any(pair.name in opinfo.exceptions(f"gradient-{kind}") for kind in ("refused", "differs")):
                continue
            samples = opinfo.samples(pair, requires_grad=backward)
            if not samples:
                continue
            sample = samples[seed * len(samples) // len(SEEDS)]
            try:
                with torch.Stream(device):
                    check_sample(pair, sample, device, backward=backward)
            except Difference as difference:
                assert difference.kind in ("close", "strides"), f"{pair.name}, seed {seed}: {difference}"


def meta_knows(pair: Pair, sample: object) -> bool:
    """Whether the op runs on Meta tensors, which have shapes and no values."""
    try:
        args, kwargs = arguments_of(sample, torch.device("meta"))
        with unwarned():
            pair.op(*args, **kwargs)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("pair", parameters(PAIRS, SHARE))
def test_calls_return_while_the_stream_is_held(pair: Pair, device: torch.device) -> None:
    if pair.name in opinfo.exceptions("refused"):
        pytest.skip("the device refuses it")
    waiting = inferable = 0
    prepared = []
    for sample in opinfo.samples(pair):
        args, kwargs = arguments_of(sample, device)
        try:
            before = host_waits()
            with unwarned():
                pair.op(*args, **kwargs)
            waited = host_waits() != before
        except Exception:
            continue  # as on the CPU: test_values
        if waited:
            if meta_knows(pair, sample):
                inferable += 1
                waiting += 1
        else:
            inferable += 1
            prepared.append(arguments_of(sample, device))
    torch.accelerator.synchronize()
    # The proof for those that did not wait: they return while nothing that they queue can run.
    with Gate(torch.accelerator.current_stream(), timeout=20), unwarned():
        for args, kwargs in prepared:
            pair.op(*args, **kwargs)
    reason = opinfo.exceptions("waits").get(pair.name)
    if reason is None:
        assert not waiting, f"{waiting} of {inferable} samples wait although Meta knows their shapes"
    else:
        assert waiting, f"{pair.name} does not wait any more: take it out of op_exceptions.txt"


@pytest.mark.parametrize("pair", parameters(ERROR_PAIRS, 3 * SHARE))
def test_errors(pair: Pair, device: torch.device) -> None:
    """The same type of error for the same wrong input, at the call or at the next wait."""
    differences = []
    for wrong in opinfo.error_samples(pair.op):
        expected = call(pair.op, wrong.sample_input, CPU)
        actual = call(pair.op, wrong.sample_input, device)
        if type(expected.error) is not type(actual.error):
            differences.append(f"the CPU: {expected.error!r}, the device: {actual.error!r}")
    reason = opinfo.exceptions("error").get(pair.name)
    assert bool(differences) == (reason is not None), differences or "passes: take it out of op_exceptions.txt"


def test_the_table_is_short_and_names_what_exists() -> None:
    names = {pair.name for pair in PAIRS}
    kinds = ("refused", "differs", "close", "unsteady", "strides", "waits", "error")
    for kind in (
        *kinds,
        *(f"gradient-{kind}" for kind in kinds[:5]),
        "out-strides",
        "out-empty",
        "out-integral",
        "out-device",
    ):
        unknown = set(opinfo.exceptions(kind)) - names
        assert not unknown, f"{kind}: {unknown}"
    wrong = set(opinfo.exceptions("refused")) | set(opinfo.exceptions("differs"))
    assert len(wrong) <= 0.01 * len(PAIRS)
    assert len(opinfo.exceptions("waits")) <= 0.05 * len(PAIRS)
