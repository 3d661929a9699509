"""Streams: rows S-01 to S-09, S-11 and S-12."""

import copy
import gc
import pickle
import threading

import pytest
import torch
from contract import contract
from helpers import in_thread, run_python, thread_count
from torch_mojo_backend.testing import Gate, assert_no_host_wait


@contract("S-01")
def test_ids_count_up_from_one_on_each_device():
    run_python(
        """
        import gc
        kept = torch.Stream("mojo:0")
        assert kept.stream_id == 1 and torch.Stream("mojo:1").stream_id == 1
        assert torch.Stream("mojo:0").stream_id == 2
        gc.collect()
        assert torch.Stream("mojo:0").stream_id == 3     # never reused
        assert torch.Stream("mojo:1").stream_id == 2
        assert torch.Stream().device_index == 0 and torch.Stream(torch.device("mojo")).stream_id == 5
        assert torch.accelerator.current_stream().stream_id == 0
        """,
        HOST_DEVICES="2",
    )


@contract("S-01")
def test_streams_are_independent_queues(device):
    streams = [torch.Stream(device) for _ in range(8)]
    for held in streams:
        with Gate(held):
            for s in streams:
                if s != held:
                    with s:
                        assert torch.ones(2, device=device).sum().item() == 2
            assert not held.query()


@contract("S-01")
def test_a_stream_lives_on_when_its_object_is_gone(device):
    x = torch.zeros(4, device=device)
    torch.accelerator.synchronize()
    s = torch.Stream(device)
    number = s.stream_id
    gate = Gate(s)
    with s:
        x.add_(1)
    again = torch.Stream(stream_id=number, device_index=0, device_type=s.device_type)
    del s
    gc.collect()
    gate.open()
    again.synchronize()
    with again:
        assert x.tolist() == [1] * 4


@contract("S-02")
def test_repr_equality_and_hash(device):
    a, b = torch.Stream(device), torch.Stream(device)
    assert repr(a) == f"torch.Stream device_type=mojo, device_index=0, stream_id={a.stream_id}"
    same = torch.Stream(stream_id=a.stream_id, device_index=0, device_type=a.device_type)
    assert a == same and hash(a) == hash(same) and a is not same
    assert a != b and len({a, b, same}) == 2
    assert a != 3 and a != "x" and a != torch.mojo.default_stream()
    assert a.device == device and (a.device_index, a.device.type) == (0, "mojo")
    far = torch.Stream("mojo:1")
    assert far != torch.Stream(stream_id=far.stream_id, device_index=0, device_type=far.device_type)
    for thing in (a, torch.Event()):
        with pytest.raises(TypeError):
            pickle.dumps(thing)
        with pytest.raises(TypeError):
            copy.deepcopy(thing)


@contract("S-03")
def test_with_makes_a_stream_current_and_restores_what_was(device):
    here, a, b = torch.accelerator.current_stream(), torch.Stream(device), torch.Stream(device)
    with a:
        assert torch.accelerator.current_stream() == a
        with b:
            assert torch.accelerator.current_stream() == b
            with a, a:
                assert torch.accelerator.current_stream() == a
            assert torch.accelerator.current_stream() == b
        assert torch.accelerator.current_stream() == a
    assert torch.accelerator.current_stream() == here
    with pytest.raises(KeyError), a:
        raise KeyError
    assert torch.accelerator.current_stream() == here
    with a:
        torch.accelerator.set_stream(b)
    assert torch.accelerator.current_stream() == here


@contract("S-03")
def test_set_stream_without_a_block(device, stream):
    here = torch.accelerator.current_stream()
    torch.accelerator.set_stream(stream)
    assert torch.accelerator.current_stream() == stream
    with torch.Stream(device):
        pass
    assert torch.accelerator.current_stream() == stream
    with Gate(stream):
        y = torch.ones(1, device=device)
        assert not stream.query()
    assert y.item() == 1
    torch.accelerator.set_stream(here)


@contract("S-03")
def test_generators_that_yield_inside_a_block(device):
    here, a, b = torch.accelerator.current_stream(), torch.Stream(device), torch.Stream(device)

    def inside(s):
        with s:
            yield

    first, second = inside(a), inside(b)
    next(first)
    next(second)
    first.close()
    second.close()  # in the wrong order: no crash, and set_stream recovers
    torch.accelerator.set_stream(here)
    assert torch.accelerator.current_stream() == here


@contract("S-04")
def test_a_stream_of_another_device(device, other):
    here = [torch.accelerator.current_stream(i) for i in (0, 1)]
    far = torch.Stream(other)
    assert far.device == other and torch.accelerator.current_device_index() == 0
    with far:
        assert torch.accelerator.current_device_index() == 1
        assert torch.accelerator.current_stream() == far and torch.accelerator.current_stream(0) == here[0]
        assert torch.empty(1, device="mojo").device == other
    assert torch.accelerator.current_device_index() == 0
    assert [torch.accelerator.current_stream(i) for i in (0, 1)] == here
    with pytest.raises(KeyError), far:
        raise KeyError
    assert torch.accelerator.current_device_index() == 0
    torch.accelerator.set_stream(far)
    assert torch.accelerator.current_device_index() == 1 and torch.accelerator.current_stream() == far
    torch.accelerator.set_stream(here[1])
    torch.accelerator.set_device_index(0)


@contract("S-05", "S-06")
def test_priorities_reach_the_driver_and_are_clamped(device):
    least, greatest = torch.mojo.priority_range()
    assert greatest < least, "at least two levels"
    for asked in (-(2**31), -100, -1, 0, 1, 100, 2**31 - 1):
        s = torch.Stream(device, priority=asked)
        assert torch.mojo.stream_priority(s) == min(max(asked, greatest), least)
        with s:
            assert torch.ones(1, device=device).item() == 1
    assert torch.mojo.stream_priority(torch.mojo.default_stream()) in range(greatest, least + 1)
    assert torch.mojo.priority_range(1) == (least, greatest)


@contract("S-05", "S-06")
def test_of_two_ready_streams_the_one_of_higher_priority_runs_first():
    run_python(
        """
        from torch_mojo_backend.testing import Gate
        least, greatest = torch.mojo.priority_range()
        for order in ((least, greatest), (greatest, least)) * 20:
            x = torch.zeros(1, device="mojo")
            torch.accelerator.synchronize()
            gate = Gate()
            opened = torch.accelerator.current_stream().record_event()
            streams = {p: torch.Stream("mojo", priority=p) for p in order}
            for p, s in streams.items():
                s.wait_event(opened)
                with s:
                    x.mul_(2) if p == least else x.add_(1)
            gate.open()                     # both become ready together; one worker runs them
            for s in streams.values():
                s.synchronize()
            assert x.item() == 2, f"the stream of lower priority ran first, issued as {order}"
        """,
        HOST_WORKERS="1",
    )


@contract("S-07")
def test_query_tells_whether_all_work_has_finished(device, stream):
    assert stream.query() is True
    gate = Gate(stream)
    with assert_no_host_wait():
        assert stream.query() is False and torch.mojo.default_stream().query() is True
    gate.open()
    stream.synchronize()
    assert stream.query() is True


@contract("S-07")
def test_query_is_false_while_the_last_task_runs(device, stream):
    source = torch.full((1 << 22,), 3.0, device=device)
    for _ in range(20):
        target = torch.zeros(1 << 22).pin_memory()
        torch.accelerator.synchronize()
        with stream:
            target.copy_(source, non_blocking=True)
        while not stream.query():
            pass
        assert bool((target == 3).all())


@contract("S-08", "M-01")
@pytest.mark.parametrize("how", ["wait_stream", "wait_event", "event.wait", "event.wait current", "record_event"])
def test_waits_order_streams_and_block_no_host_thread(device, stream, how):
    consumer = torch.Stream(device)
    x, y = torch.zeros(1 << 12, device=device), torch.zeros(1 << 12, device=device)
    torch.accelerator.synchronize()
    gate = Gate(stream)
    with stream:
        x.fill_(1)
    with assert_no_host_wait():
        if how == "wait_stream":
            consumer.wait_stream(stream)
        elif how == "wait_event":
            event = torch.Event()
            assert stream.record_event(event) is event
            consumer.wait_event(event)
        elif how == "event.wait":
            event = torch.Event()
            event.record(stream)
            event.wait(consumer)
        elif how == "event.wait current":
            event = stream.record_event()
            with consumer:
                event.wait()
        else:
            consumer.wait_event(stream.record_event())
    with consumer, assert_no_host_wait():
        y.copy_(x).add_(1)
    assert not consumer.query()
    assert torch.mojo.default_stream().query(), "no other stream waits"
    gate.open()
    consumer.synchronize()
    with consumer:
        assert bool((y == 2).all())


@contract("S-08")
def test_a_wait_is_for_what_was_queued_before_it(device, stream):
    consumer = torch.Stream(device)
    consumer.wait_stream(stream)
    event = stream.record_event()
    with Gate(stream):
        consumer.wait_event(event)
        consumer.synchronize()
        assert not stream.query()


@contract("S-08")
def test_a_stream_may_wait_for_itself_and_for_an_idle_one(device, stream):
    with Gate(stream):
        stream.wait_stream(stream)
        stream.wait_stream(torch.mojo.default_stream())
    stream.synchronize()


@contract("S-08")
def test_a_chain_of_two_hundred_streams_ends_with_two_workers():
    run_python(
        """
        from torch_mojo_backend.testing import Gate
        streams = [torch.Stream("mojo") for _ in range(200)]
        x = torch.zeros(1, device="mojo")
        torch.accelerator.synchronize()
        gate = Gate(streams[0])
        for i, s in enumerate(streams):
            if i:
                s.wait_stream(streams[i - 1])
            with s:
                x.mul_(1).add_(1)
        assert not any(s.query() for s in streams)
        assert torch.ones(5, device="mojo").sum().item() == 5      # two hundred waiting streams hold no worker
        gate.open()
        streams[-1].synchronize()
        with streams[-1]:
            assert x.item() == 200
        """,
        HOST_WORKERS="2",
    )


@contract("S-09")
def test_native_handle(device, stream):
    handle = stream.native_handle
    assert isinstance(handle, int) and handle != 0
    assert handle == stream.native_handle
    same = torch.Stream(stream_id=stream.stream_id, device_index=0, device_type=stream.device_type)
    assert same.native_handle == handle
    others = [torch.Stream(device), torch.Stream("mojo:1"), torch.mojo.default_stream(), torch.mojo.default_stream(1)]
    assert len({s.native_handle for s in [*others, stream]}) == 5


@contract("S-11")
def test_streams_that_are_not_used_cost_no_thread(device):
    before = thread_count()
    streams = [torch.Stream(device) for _ in range(10000)]
    assert thread_count() == before
    with streams[-1]:
        assert torch.ones(1, device=device).item() == 1


USES = {
    "synchronize": lambda s: s.synchronize(),
    "query": lambda s: s.query(),
    "record_event": lambda s: s.record_event(),
    "event.record": lambda s: torch.Event().record(s),
    "wait_event": lambda s: s.wait_event(torch.accelerator.current_stream().record_event()),
    "wait_stream": lambda s: s.wait_stream(torch.accelerator.current_stream()),
    "waited for": lambda s: torch.accelerator.current_stream().wait_stream(s),
    "with": lambda s: s.__enter__(),
    "set_stream": lambda s: torch.accelerator.set_stream(s),
    "mojo.set_stream": lambda s: torch.mojo.set_stream(s),
    "mojo.stream": lambda s: torch.mojo.stream(s).__enter__(),
    "priority": lambda s: torch.mojo.stream_priority(s),
    "native_handle": lambda s: s.native_handle,
    "record_stream": lambda s: torch.ones(1, device="mojo").record_stream(s),
}


@contract("S-12")
@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("number", [1 << 20, -1, 2**62])
def test_an_id_of_no_stream_raises_on_first_use(device, use, number):
    known = torch.Stream(device)
    unknown = torch.Stream(stream_id=number, device_index=0, device_type=known.device_type)
    with pytest.raises(RuntimeError, match=str(number)):
        use(unknown)
    assert torch.accelerator.current_stream() == torch.mojo.default_stream()
    assert torch.ones(1, device=device).item() == 1


@contract("S-12")
def test_a_device_of_no_stream_raises_on_first_use(device):
    known = torch.Stream(device)
    for index in (2, 100):
        unknown = torch.Stream(stream_id=0, device_index=index, device_type=known.device_type)
        for use in (unknown.synchronize, unknown.query, unknown.record_event, unknown.__enter__):
            with pytest.raises(RuntimeError):
                use()
        assert torch.accelerator.current_device_index() == 0


def test_a_stream_of_another_device_type_is_refused(device, stream):
    cpu = torch.Stream("cpu")
    for use in (
        lambda: torch.accelerator.set_stream(cpu),
        lambda: torch.mojo.set_stream(cpu),
        lambda: torch.mojo.stream(cpu),
        lambda: torch.ones(1, device=device).record_stream(cpu),
        lambda: stream.record_event().record(cpu),
    ):
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            use()
    for use in (lambda: stream.record_event("x"), lambda: torch.Event(enable_timing=True).elapsed_time(3)):
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            use()
    assert torch.accelerator.current_stream() == torch.mojo.default_stream()


@contract("S-08", "O-07")
def test_threads_use_one_stream_and_many(device):
    x = torch.zeros(8, device=device)
    shared = torch.Stream(device)
    torch.accelerator.synchronize()

    def work(i: int) -> None:
        own = torch.Stream(device)
        s = torch.Stream(stream_id=shared.stream_id, device_index=0, device_type=shared.device_type)
        for _ in range(50):
            with s:
                x[i : i + 1].add_(1)
            own.wait_stream(s)
            with own:
                y = x[i : i + 1] * 2
                y.record_stream(s)
            own.record_event().query()
        own.synchronize()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    shared.synchronize()
    assert x.tolist() == [50] * 8


def test_a_new_thread_does_not_inherit_the_stream(device, stream):
    with stream:
        assert in_thread(lambda: torch.accelerator.current_stream() == torch.mojo.default_stream())
