"""Several streams and memory: rows M-01 to M-04 and M-06 to M-08."""

import gc

import pytest
import torch
from contract import contract
from helpers import run_python
from torch_mojo_backend.testing import Gate, assert_no_host_wait

SIZE = 1 << 10


def block(device: torch.device, value: float | None = None, size: int = SIZE) -> torch.Tensor:
    return torch.empty(size, device=device) if value is None else torch.full((size,), value, device=device)


@contract("M-02")
@pytest.mark.parametrize("view", [lambda x: x, lambda x: x[100:], lambda x: x.view(32, 32)[3:7, 5:9], lambda x: x[-1:]])
def test_record_stream_keeps_freed_memory_until_the_queued_work_is_done(device, stream, view):
    owner = torch.Stream(device)
    with owner:
        x = block(device)
    address, seen = x.data_ptr(), view(x)
    with Gate(stream):
        with stream:
            seen.add_(1)
        seen.record_stream(stream)
        del x, seen
        with owner:
            others = [block(device) for _ in range(8)]
        assert address not in [y.data_ptr() for y in others]
        del others
    stream.synchronize()
    with owner:
        again = [block(device) for _ in range(9)]
    assert address in [y.data_ptr() for y in again], "and is given back after it"


@contract("M-02")
def test_record_stream_protects_the_values(device, stream):
    owner = torch.Stream(device)
    with owner:
        x = block(device, 3.0)
    stream.wait_stream(owner)
    with Gate(stream):
        with stream:
            y = x * 2
        x.record_stream(stream)
        del x
        with owner:
            for _ in range(20):
                block(device, -1.0)
        owner.synchronize()
    with stream:
        assert bool((y == 6).all())


@contract("M-02")
def test_record_stream_covers_work_queued_until_the_free(device, stream):
    """What is queued on the stream after record_stream, but before the tensor is dropped, is protected too."""
    owner = torch.Stream(device)
    with owner:
        x = block(device, 3.0)
    stream.wait_stream(owner)
    x.record_stream(stream)
    with Gate(stream):
        with stream:
            y = x * 2
        address = x.data_ptr()
        del x
        with owner:
            assert block(device, -1.0).data_ptr() != address
    with stream:
        assert bool((y == 6).all())


@contract("M-02")
def test_record_stream_for_a_stream_of_another_device(device, other):
    far = torch.Stream(other)
    x = block(device)
    address = x.data_ptr()
    with Gate(far):
        x.record_stream(far)
        del x
        assert address not in [y.data_ptr() for y in [block(device) for _ in range(8)]]
    far.synchronize()
    assert address in [y.data_ptr() for y in [block(device) for _ in range(9)]]


@contract("M-03")
def test_freed_memory_is_reused_at_once_by_its_own_stream(device, stream):
    with stream, Gate(), assert_no_host_wait():
        x = block(device, 1.0)
        address = x.data_ptr()
        x.mul_(3)
        del x
        y = block(device, 0.0)
        assert y.data_ptr() == address
        y.record_stream(stream)  # its own stream: no delay
        del y
        z = block(device, 5.0)
        assert z.data_ptr() == address
    with stream:
        assert bool((z == 5).all())


@contract("M-03")
def test_another_stream_gets_freed_memory_only_once_ordered_or_done(device, stream):
    with stream:
        x = block(device, 1.0, 1 << 22)
        x.mul_(2)
    address = x.data_ptr()
    gate = Gate(stream)
    del x
    y = block(device, None, 1 << 22)
    assert y.data_ptr() != address, "the default stream is not ordered after the use"
    gate.open()


@contract("M-03")
def test_a_use_already_ordered_before_does_not_delay_reuse(device, stream):
    """record_stream, then the owner waits for that stream: nothing is left to wait for, whatever has run."""
    owner = torch.Stream(device)
    with owner:
        x = block(device)
    address = x.data_ptr()
    gate = Gate(stream)
    with stream:
        x.add_(1)
    x.record_stream(stream)
    owner.wait_stream(stream)
    del x
    with owner:
        assert block(device).data_ptr() == address
    gate.open()


@contract("M-04")
def test_record_stream_never_makes_the_owner_wait(device, stream):
    owner = torch.Stream(device)
    with Gate(stream):
        with owner, assert_no_host_wait():
            x = block(device, 1.0)
            x.record_stream(stream)
            del x
            y = block(device, 2.0)
        owner.synchronize()  # else the gate opens by itself and raises TimeoutError
        with owner:
            assert bool((y == 2).all())
        assert not stream.query()


@contract("M-02", "M-03")
def test_growth_by_record_stream_is_bounded(device, stream):
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    start = torch.accelerator.memory_reserved()
    with Gate(stream):
        for _ in range(16):
            x = torch.empty(1 << 18, device=device)
            x.record_stream(stream)
            del x
        top = torch.accelerator.memory_reserved()
    stream.synchronize()
    for _ in range(64):
        x = torch.empty(1 << 18, device=device)
        x.record_stream(stream)
        del x
    stream.synchronize()
    assert torch.accelerator.memory_reserved() <= top
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() <= start


def figures(device: torch.device) -> dict:
    return torch.accelerator.memory_stats(device)


@contract("M-06")
def test_figures_are_those_that_cuda_would_give(device):
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    torch.accelerator.reset_accumulated_memory_stats()
    torch.accelerator.reset_peak_memory_stats()
    before = figures(device)
    x = torch.empty(250, device=device)  # 1000 bytes, rounded to 1024
    during = figures(device)

    def grown(key: str) -> int:
        return during[key] - before[key]

    for pool in ("all", "small_pool"):
        assert grown(f"allocated_bytes.{pool}.current") == grown(f"active_bytes.{pool}.current") == 1024
        assert grown(f"allocated_bytes.{pool}.allocated") == 1024
        assert grown(f"requested_bytes.{pool}.current") == 1000
        assert grown(f"allocation.{pool}.current") == grown(f"active.{pool}.current") == 1
    assert grown("allocated_bytes.large_pool.current") == 0
    assert during["reserved_bytes.all.current"] >= during["allocated_bytes.all.current"]
    assert during["segment.all.current"] >= 1
    del x
    after = figures(device)
    assert after["allocated_bytes.all.current"] == before["allocated_bytes.all.current"]
    assert after["allocated_bytes.all.freed"] - before["allocated_bytes.all.freed"] == 1024
    assert after["allocated_bytes.all.peak"] == during["allocated_bytes.all.current"]
    assert torch.accelerator.max_memory_allocated() == during["allocated_bytes.all.current"]
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == after["allocated_bytes.all.current"]
    torch.accelerator.reset_accumulated_memory_stats()
    assert figures(device)["allocated_bytes.all.allocated"] == figures(device)["allocated_bytes.all.freed"] == 0


@contract("M-06")
def test_large_allocations_have_a_pool_of_their_own(device):
    before = figures(device)
    x = torch.empty(8 << 20, dtype=torch.uint8, device=device)
    during = figures(device)
    assert during["allocated_bytes.large_pool.current"] - before["allocated_bytes.large_pool.current"] == 8 << 20
    assert during["allocated_bytes.small_pool.current"] == before["allocated_bytes.small_pool.current"]
    del x


@contract("M-06")
def test_pending_memory_is_active_but_not_allocated(device, stream):
    torch.accelerator.synchronize()
    before = figures(device)
    with Gate(stream):
        x = block(device)
        x.record_stream(stream)
        del x
        during = figures(device)
        assert during["allocated_bytes.all.current"] == before["allocated_bytes.all.current"]
        assert during["active_bytes.all.current"] - before["active_bytes.all.current"] == 4 * SIZE
        assert [
            b["state"]
            for s in torch.mojo.memory_snapshot(0)
            for b in s["blocks"]
            if b["state"] == "active_pending_free"
        ]
    stream.synchronize()
    block(device)
    assert figures(device)["active_bytes.all.current"] == before["active_bytes.all.current"]


@contract("M-06")
def test_each_device_counts_its_own(device, other):
    before = [torch.accelerator.memory_allocated(i) for i in (0, 1)]
    x = torch.empty(1 << 20, dtype=torch.uint8, device=other)
    assert torch.accelerator.memory_allocated(0) == before[0]
    assert torch.accelerator.memory_allocated("mojo:1") == before[1] + (1 << 20)
    assert torch.accelerator.current_device_index() == 0
    del x


@contract("M-06")
def test_empty_cache_while_streams_are_busy_is_safe(device, stream):
    kept = block(device, 7.0)
    with Gate(stream):
        with stream:
            x = block(device, 1.0)
            y = x * 2
        pending = block(device, 3.0)
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            z = pending + 1
        pending.record_stream(stream)
        del pending, x
        torch.accelerator.empty_cache()
        fresh = [block(device, -5.0) for _ in range(20)]
    with stream:
        assert bool((y == 2).all()) and bool((z == 4).all())
    assert bool((kept == 7).all()) and all(bool((f == -5).all()) for f in fresh)


@contract("M-06")
def test_empty_cache_returns_what_nothing_uses(device):
    torch.accelerator.synchronize()
    gc.collect()
    torch.accelerator.empty_cache()
    start = torch.accelerator.memory_reserved()
    x = torch.empty(32 << 20, dtype=torch.uint8, device=device)
    assert torch.accelerator.memory_reserved() >= start + (32 << 20)
    del x
    assert torch.accelerator.memory_reserved() >= start + (32 << 20)
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_reserved() <= start


@contract("M-06")
def test_memory_functions_before_the_first_use():
    run_python(
        """
        A = torch.accelerator
        assert dict(A.memory_stats()) == {} and A.memory_allocated() == 0 and A.max_memory_reserved() == 0
        A.empty_cache(); A.synchronize(); A.reset_peak_memory_stats(); A.reset_accumulated_memory_stats()
        getattr(A, "empty_host_cache", lambda: None)()
        assert "0" in torch.mojo.memory_summary()
        x = torch.zeros(1 << 18, device="mojo")
        assert A.memory_allocated() == A.memory_allocated(0) == 1 << 20
        """
    )


@contract("M-07")
def test_out_of_memory_says_what_was_asked_and_what_there_is(device):
    before = figures(device)["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(1 << 50, dtype=torch.uint8, device=device)
    text = str(caught.value)
    assert "mojo backend: " in text
    for word in ("free", "allocated", "reserved"):
        assert word in text
    assert "1024.00 TiB" in text or "1048576.00 GiB" in text or str(1 << 50) in text or "1024.0 TiB" in text, text
    assert figures(device)["num_ooms"] == before + 1
    assert torch.ones(8, device=device).sum().item() == 8


@contract("M-07")
def test_cached_memory_is_released_and_the_allocation_retried():
    run_python(
        """
        M = 1 << 20
        def bytes_of(n): return torch.empty(n, dtype=torch.uint8, device="mojo")
        stats = torch.accelerator.memory_stats
        small = [bytes_of(30 * M) for _ in range(3)]
        del small                                    # 90 MiB cached, in pieces too small
        big = bytes_of(100 * M)
        s = stats()
        assert s["num_alloc_retries"] >= 1 and s["num_ooms"] == 0, s
        try:
            bytes_of(60 * M)
        except torch.OutOfMemoryError:
            pass
        else:
            raise SystemExit("more memory than there is")
        assert stats()["num_ooms"] == 1
        del big
        assert bytes_of(100 * M).fill_(3).sum().item() == 300 * M     # the next that fits succeeds
        """,
        HOST_MEMORY="128M",
    )


@contract("M-07")
def test_memory_pending_on_a_busy_stream_is_waited_for_before_giving_up():
    run_python(
        """
        import threading
        from torch_mojo_backend.testing import Gate
        M = 1 << 20
        side = torch.Stream("mojo")
        x = torch.empty(100 * M, dtype=torch.uint8, device="mojo")
        gate = Gate(side)
        x.record_stream(side)
        del x
        threading.Timer(0.1, gate.open).start()
        assert torch.empty(100 * M, dtype=torch.uint8, device="mojo").numel() == 100 * M
        """,
        HOST_MEMORY="128M",
    )


@contract("M-08")
def test_a_limit_for_the_process(device, other):
    total = torch.mojo.get_device_properties(1).total_memory
    torch.accelerator.synchronize(1)
    torch.accelerator.set_device_index(1)
    torch.accelerator.empty_cache()
    torch.accelerator.set_device_index(0)
    assert torch.mojo.get_per_process_memory_fraction(1) == 1.0
    held = torch.accelerator.memory_reserved(1)
    try:
        torch.mojo.set_per_process_memory_fraction((held + (64 << 20)) / total, other)
        assert torch.mojo.get_per_process_memory_fraction(1) == pytest.approx((held + (64 << 20)) / total, abs=1e-9)
        x = torch.empty(48 << 20, dtype=torch.uint8, device=other)
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(48 << 20, dtype=torch.uint8, device=other)
        torch.empty(48 << 20, dtype=torch.uint8, device=device)  # the other device has no limit
        del x
        torch.empty(48 << 20, dtype=torch.uint8, device=other)
    finally:
        torch.mojo.set_per_process_memory_fraction(1.0, 1)
    torch.empty(96 << 20, dtype=torch.uint8, device=other)


@contract("M-08")
def test_a_snapshot_agrees_with_the_figures(device, stream):
    with stream:
        kept = [torch.empty(n, dtype=torch.uint8, device=device) for n in (100, 5000, 3 << 20)]
    del kept[1]
    torch.accelerator.synchronize()
    segments = torch.mojo.memory_snapshot(0)
    assert sum(s["total_size"] for s in segments) == torch.accelerator.memory_reserved(0)
    assert sum(s["allocated_size"] for s in segments) == torch.accelerator.memory_allocated(0)
    for segment in segments:
        assert segment["device"] == 0 and segment["segment_type"] in ("small", "large")
        assert sum(b["size"] for b in segment["blocks"]) == segment["total_size"]
        address = segment["address"]
        for found in segment["blocks"]:
            assert found["address"] == address
            address += found["size"]
    blocks = {b["address"]: (s, b) for s in segments for b in s["blocks"]}
    for tensor in kept:
        segment, found = blocks[tensor.data_ptr()]
        assert found["state"] == "active_allocated" and found["requested_size"] == tensor.numel()
        assert isinstance(segment["stream"], int)
    assert {s["device"] for s in torch.mojo.memory_snapshot()} >= {0}


@contract("M-08")
def test_a_summary_has_the_figures(device):
    x = torch.empty(3 << 20, dtype=torch.uint8, device=device)
    torch.accelerator.synchronize()
    full, short = torch.mojo.memory_summary(), torch.mojo.memory_summary(0, abbreviated=True)
    assert "mojo:0" in full and "large pool" in full and "large pool" not in short
    count = torch.accelerator.memory_stats()["allocation.all.allocated"]
    assert f" {count} " in short and len({len(line) for line in full.splitlines()}) == 1
    nested = torch.mojo.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == torch.accelerator.memory_allocated()
    del x


@contract("R-04", "M-06")
def test_memory_taken_as_an_address(device, stream):
    before = torch.accelerator.memory_allocated()
    with Gate(stream):
        address = torch.mojo.caching_allocator_alloc(1000, 0, stream)
        assert address and torch.accelerator.memory_allocated() == before + 1024
        torch.mojo.caching_allocator_delete(address)
        assert torch.accelerator.memory_allocated() == before
        with stream:
            assert torch.empty(250, device=device).data_ptr() == address, "it belongs to the stream it was taken for"


@contract("M-02", "M-03")
def test_zero_bytes(device, stream):
    before = torch.accelerator.memory_allocated()
    x = torch.empty(0, device=device)
    x.record_stream(stream)
    assert torch.accelerator.memory_allocated() == before and x.data_ptr() == 0
    with stream:
        assert x.clone().sum().item() == 0


@contract("M-02")
def test_threads_that_allocate_and_share(device):
    run_python(
        """
        import threading, time, gc, random
        stop = time.monotonic() + 3
        wrong = []
        def work(seed):
            r = random.Random(seed)
            own, side = torch.Stream("mojo"), torch.Stream("mojo")
            while time.monotonic() < stop and not wrong:
                with own:
                    n = r.randrange(1, 1 << 15)
                    x = torch.full((n,), float(seed), device="mojo")
                side.wait_stream(own)
                with side:
                    y = x.add(1)
                x.record_stream(side)
                del x
                with own:
                    torch.full((n,), -1.0, device="mojo")
                with side:
                    if not bool((y == seed + 1).all()):
                        wrong.append(seed)
                if r.random() < 0.05:
                    torch.accelerator.empty_cache()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        [t.start() for t in threads]; [t.join(60) for t in threads]
        assert not any(t.is_alive() for t in threads) and not wrong, wrong
        """
    )


@contract("M-07")
def test_addresses_of_freed_segments_are_given_up_for_new_ones():
    # Their pages are the system's again, but a process may be bound in its addresses too.
    run_python(
        """
        import resource
        x = torch.ones(1, device="mojo"); torch.accelerator.synchronize()
        now = next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmSize")) << 10
        resource.setrlimit(resource.RLIMIT_AS, (now + (3 << 30), now + (3 << 30)))
        for i in range(40):
            x = torch.empty((200 + 2 * i) << 20, dtype=torch.uint8, device="mojo")
            del x
            torch.accelerator.empty_cache()
        assert torch.mojo.memory_reserved() <= 4 << 20
        """
    )


@contract("M-10")
def test_memory_that_is_returned_under_pending_work_gives_wrong_values_and_no_fault():
    # For want of a record_stream: the program is wrong, and must get the chance to show it.
    run_python(
        """
        from torch_mojo_backend.testing import Gate
        side = torch.Stream("mojo")
        x = torch.ones(4 << 20, device="mojo")
        torch.accelerator.synchronize()
        with Gate(side):
            with side:
                y = x + 1
            del x
            torch.accelerator.empty_cache()
        side.synchronize()
        assert y.shape == (4 << 20,)
        """
    )
