"""The helpers of torch_mojo_backend.testing."""

import time

import pytest
import torch
from contract import contract
from helpers import in_thread, opened_meanwhile
from torch_mojo_backend.testing import Gate, assert_no_host_wait, host_waits


@contract("S-07", "S-08")
def test_a_gate_holds_its_stream_and_nothing_else(device, stream):
    x = torch.zeros(2, device=device)
    torch.accelerator.synchronize()
    with stream:
        x.add_(1)
    gate = Gate(stream)
    with stream:
        x.add_(1)
    while not gate.held:  # it comes to the gate by itself
        time.sleep(0)
    assert gate.stream == stream and not gate.is_open and not stream.query()
    assert x.tolist() == [1, 1], "what was queued before the gate has run, what was queued after it has not"
    gate.open()
    gate.open()
    assert gate.is_open and not gate.held
    stream.synchronize()
    assert x.tolist() == [2, 2]


def test_a_gate_is_on_the_current_stream_by_default(device, stream):
    with stream, Gate() as gate:
        assert gate.stream == stream
        assert torch.mojo.default_stream().query() and not stream.query()


def test_several_gates_on_one_stream(device, stream):
    first, second = Gate(stream), Gate(stream)
    event = stream.record_event()
    second.open()
    assert not event.query() and not second.held
    first.open()
    event.synchronize()


def test_a_gate_that_is_not_opened_opens_by_itself_and_says_so(device, stream):
    with pytest.raises(TimeoutError, match="stream_id"), Gate(stream, timeout=0.05):
        stream.synchronize()
    gate = Gate(stream, timeout=0.05)
    stream.synchronize()
    with pytest.raises(TimeoutError):
        gate.open()
    gate.open()
    with pytest.raises(KeyError), Gate(stream, timeout=0.05):  # another exception is not hidden
        stream.synchronize()
        raise KeyError


def test_the_block_of_a_gate_opens_it_on_an_exception(device, stream):
    with pytest.raises(KeyError), Gate(stream):
        raise KeyError
    stream.synchronize()


def test_a_gate_that_is_dropped_keeps_no_stream_held_for_ever(device, stream):
    Gate(stream, timeout=0.05)
    stream.synchronize()


def test_assert_no_host_wait(device, stream):
    x = torch.zeros(2, device=device)
    torch.accelerator.synchronize()
    with assert_no_host_wait():
        x.add_(1)
    gate = Gate(stream)
    before = host_waits()
    with opened_meanwhile(gate), pytest.raises(AssertionError, match="wait"), assert_no_host_wait():
        stream.synchronize()
    assert host_waits() > before
    assert in_thread(host_waits) == 0, "each thread counts its own"
    with pytest.raises(KeyError), assert_no_host_wait():
        raise KeyError


def test_a_gate_takes_a_stream_of_the_device_only(device):
    other = torch.Stream(stream_id=0, device_index=0, device_type=0)  # a CPU stream, by its bare numbers
    with pytest.raises(ValueError, match="expected a stream of a mojo device"):
        Gate(other)
    with pytest.raises(TypeError, match="expected a torch.Stream, got int"):
        Gate(5)
    for timeout in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            Gate(timeout=timeout)
    torch.ones(2, device=device).add_(1)
    torch.accelerator.synchronize()
    with Gate(timeout=float("inf")):
        pass
