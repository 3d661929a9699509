"""Events: rows E-01 to E-07 and E-09."""

import gc

import pytest
import torch
from contract import contract
from helpers import opened_meanwhile
from torch_mojo_backend.testing import Gate, assert_no_host_wait


@contract("E-01")
def test_record_means_the_current_stream_or_the_given_one(device, stream):
    with Gate(stream):
        here = torch.Event()
        here.record()
        assert here.query(), "the current stream is idle"
        there = torch.Event(device)
        there.record(stream)
        by_stream = stream.record_event()
        with stream:
            inside = torch.Event()
            inside.record()
        for event in (there, by_stream, inside):
            assert not event.query()
    for event in (there, by_stream, inside):
        event.synchronize()
        assert event.query()
    assert type(by_stream) is torch.Event and stream.record_event(here) is here


@contract("E-01")
def test_an_event_gets_the_device_of_its_first_record(device, other):
    event = torch.Event(other)
    assert event.event_id == 0 and event.device.index is None
    torch.Stream(other).record_event(event)
    assert event.event_id != 0 and event.device == other


@contract("E-02")
def test_query_does_not_block_and_synchronize_does(device, stream):
    gate = Gate(stream)
    event = stream.record_event()
    with assert_no_host_wait():
        assert event.query() is False
    with opened_meanwhile(gate):
        event.synchronize()
    assert event.query() is True and stream.query()
    event.synchronize()


@contract("E-03")
def test_waits_on_the_device(device, stream):
    x = torch.zeros(8, device=device)
    consumers = [torch.Stream(device) for _ in range(3)]
    torch.accelerator.synchronize()
    gate = Gate(stream)
    with stream:
        x.fill_(1)
    event = stream.record_event()
    with assert_no_host_wait():
        event.wait(consumers[0])
        consumers[1].wait_event(event)
        with consumers[2]:
            event.wait()
        results = []
        for consumer in consumers:
            with consumer:
                results.append(x + 1)
            assert not consumer.query()
    gate.open()
    for consumer, result in zip(consumers, results, strict=True):
        with consumer:
            assert result.tolist() == [2] * 8


@contract("E-03")
def test_waiting_holds_back_later_work_only(device, stream):
    consumer = torch.Stream(device)
    x = torch.zeros(4, device=device)
    torch.accelerator.synchronize()
    with consumer:
        x.add_(1)
    before = consumer.record_event()
    with Gate(stream):
        consumer.wait_event(stream.record_event())
        before.synchronize()
        assert not consumer.query()
    consumer.synchronize()


@contract("E-04")
def test_elapsed_time_is_milliseconds_of_device_time(device, stream):
    start, end = torch.Event(enable_timing=True), torch.Event(device, enable_timing=True)
    with stream:
        start.record()
        torch.mojo._sleep(int(30 * 1.5e6))
        end.record()
    end.synchronize()
    elapsed = start.elapsed_time(end)
    assert isinstance(elapsed, float) and elapsed >= 30
    assert end.elapsed_time(start) == -elapsed and start.elapsed_time(end) == elapsed


@contract("E-04")
def test_time_is_device_time(device, stream):
    start, end = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
    whole = [torch.Event(enable_timing=True) for _ in range(2)]
    x = torch.ones(1, device=device)
    whole[0].record(torch.mojo.default_stream())
    whole[0].synchronize()
    with Gate(stream):  # the host goes through the calls long before the device does
        with stream:
            start.record()
            x.add_(1)
            end.record()
        with torch.Stream(device) as busy:
            torch.mojo._sleep(int(20 * 1.5e6))
        busy.synchronize()
    end.synchronize()
    whole[1].record()
    whole[1].synchronize()
    assert 0 < start.elapsed_time(end) < whole[0].elapsed_time(start)
    assert whole[0].elapsed_time(start) >= 20, "the record happened when the gate let the stream go on"
    assert whole[0].elapsed_time(whole[1]) >= whole[0].elapsed_time(end)


@contract("E-04")
def test_the_clock_is_fine_enough_for_one_small_op(device, stream):
    x = torch.ones(1, device=device)
    with stream:
        for _ in range(50):
            start, end = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
            start.record()
            x.add_(1)
            end.record()
            end.synchronize()
            assert start.elapsed_time(end) > 0


@contract("E-04")
def test_elapsed_time_refuses(device, stream):
    timed = [torch.Event(enable_timing=True) for _ in range(2)]
    untimed = torch.Event()
    for event in (*timed[:1], untimed):
        event.record()
        event.synchronize()
    with pytest.raises(ValueError):
        timed[0].elapsed_time(untimed)
    with pytest.raises(ValueError):
        untimed.elapsed_time(timed[0])
    with pytest.raises(ValueError):
        timed[0].elapsed_time(timed[1])  # never recorded
    with pytest.raises(ValueError):
        timed[1].elapsed_time(timed[0])
    with Gate(stream):
        timed[1].record(stream)
        with pytest.raises(RuntimeError):
            timed[0].elapsed_time(timed[1])
        with pytest.raises(RuntimeError):
            timed[1].elapsed_time(timed[0])
    timed[1].synchronize()
    assert timed[0].elapsed_time(timed[1]) >= 0  # the failed calls spoilt nothing


@contract("E-05")
def test_an_event_never_recorded_counts_as_complete(device, stream):
    for event in (torch.Event(), torch.Event(device), torch.Event(enable_timing=True)):
        with Gate(stream), assert_no_host_wait():
            assert event.query() is True and event.event_id == 0
            event.synchronize()
        event.wait()
        event.wait(stream)
        stream.wait_event(event)
        torch.accelerator.current_stream().wait_event(event)
    torch.accelerator.synchronize()


@contract("E-06")
def test_recording_again_replaces_what_the_event_stands_for(device, stream):
    event = torch.Event()
    event.record(torch.mojo.default_stream())
    event.synchronize()
    first = Gate(stream)
    event.record(stream)
    assert not event.query()
    second = Gate(stream)
    marker = stream.record_event()
    event.record(stream)
    first.open()
    assert not event.query() and not marker.query()
    second.open()
    event.synchronize()
    assert event.query()


@contract("E-06")
def test_recording_again_on_an_idle_stream_completes_the_event(device, stream):
    with Gate(stream):
        event = stream.record_event()
        assert not event.query()
        event.record(torch.mojo.default_stream())
        event.synchronize()
        assert event.query() and not stream.query()


@contract("E-06")
def test_a_wait_keeps_the_record_it_was_issued_against(device, stream):
    early, late, event = torch.Stream(device), torch.Stream(device), torch.Event()
    x = torch.zeros(4, device=device)
    torch.accelerator.synchronize()
    first = Gate(stream)
    with stream:
        x.add_(1)
    event.record(stream)
    early.wait_event(event)
    with Gate(stream):
        event.record(stream)
        late.wait_event(event)
        first.open()
        early.synchronize()  # else it waits for the second record and the gate times out
        with early:
            assert x.tolist() == [1] * 4
        assert not late.query()
    late.synchronize()


@contract("E-06")
def test_a_pending_wait_is_not_released_by_recording_on_an_idle_stream(device, stream):
    consumer, event = torch.Stream(device), torch.Event()
    with Gate(stream):
        event.record(stream)
        consumer.wait_event(event)
        event.record(torch.mojo.default_stream())
        event.synchronize()
        assert not consumer.query()
    consumer.synchronize()


@contract("E-07")
def test_interprocess_gives_an_ordinary_event(device, stream):
    event = torch.Event(device, enable_timing=True, blocking=True, interprocess=True)
    with Gate(stream):
        event.record(stream)
        assert not event.query()
    event.synchronize()
    assert event.query()
    with pytest.raises(NotImplementedError):
        event.ipc_handle()
    with pytest.raises(NotImplementedError):
        torch.Event.from_ipc_handle(device, b"x" * 64)


@contract("E-09")
def test_destroying_an_event_while_a_wait_is_pending(device, stream):
    consumer = torch.Stream(device)
    x = torch.zeros(1 << 12, device=device)
    torch.accelerator.synchronize()
    with Gate(stream):
        with stream:
            x.fill_(1)
        event = stream.record_event()
        consumer.wait_event(event)
        consumer.wait_stream(stream)  # makes and drops an event of its own
        del event
        gc.collect()
        for _ in range(100):
            torch.Event().record(stream)
        with consumer:
            y = x + 1
        assert not consumer.query()
    with consumer:
        assert bool((y == 2).all())


@contract("E-09")
def test_destroying_an_event_whose_record_is_pending(device, stream):
    with Gate(stream):
        for _ in range(100):
            event = torch.Event(enable_timing=True)
            event.record(stream)
            event.record(stream)
            del event
        gc.collect()
    stream.synchronize()


@contract("E-09")
def test_waiting_for_an_event_of_another_device(device, other, stream):
    far = torch.Stream(other)
    x, y = torch.zeros(4, device=device), torch.zeros(4, device=other)
    torch.accelerator.synchronize(0)
    torch.accelerator.synchronize(1)
    with Gate(stream):
        with stream:
            x.fill_(1)
        far.wait_event(stream.record_event())
        far.wait_stream(stream)
        with far:
            y.fill_(2)
        assert not far.query()
    far.synchronize()
    assert stream.query() and x.tolist() == [1] * 4
    torch.accelerator.set_device_index(0)
    with far:
        assert y.tolist() == [2] * 4


@contract("E-09")
def test_recording_on_another_device_than_before_raises(device, other, stream):
    event = torch.Event(enable_timing=True)
    event.record(stream)
    event.synchronize()
    with pytest.raises(RuntimeError, match="device"):
        event.record(torch.Stream(other))
    assert event.query() and event.device == device
    event.record(stream)
    event.synchronize()
    with pytest.raises(RuntimeError):
        event.record(torch.Stream("cpu"))


@contract("E-02", "E-06")
def test_thousands_of_events(device, stream):
    events = []
    with stream:
        for _ in range(5000):
            events.append(stream.record_event())
    events[-1].synchronize()
    assert all(event.query() for event in events)
