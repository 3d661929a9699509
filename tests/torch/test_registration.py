"""Registration and selection of devices: rows R-01 to R-07."""

import threading

import pytest
import torch
import torch_mojo_backend
from contract import contract
from helpers import in_thread, run_python


@contract("R-01")
def test_importing_changes_nothing_in_torch():
    run_python(
        """
        import os, sys, torch
        def state():
            names = set(vars(torch)), set(vars(torch.Tensor)), set(vars(torch.nn.Module)), set(vars(torch.utils))
            return names, torch._C._get_privateuse1_backend_name(), torch.accelerator.current_accelerator()
        before = state()
        threads = len(os.listdir("/proc/self/task"))
        import torch_mojo_backend
        assert state() == before and before[1] == "privateuseone"
        assert not hasattr(torch, "mojo") and "torch.mojo" not in sys.modules
        assert "torch_mojo_backend._C" not in sys.modules
        assert len(os.listdir("/proc/self/task")) == threads
        """,
        register=False,
    )


@contract("R-01")
def test_loading_the_native_module_registers_nothing():
    run_python(
        """
        import torch, torch_mojo_backend
        from torch_mojo_backend import _C
        assert torch._C._get_privateuse1_backend_name() == "privateuseone"
        assert str(torch.accelerator.current_accelerator()) != "mojo"
        key = torch._C._dispatch_has_kernel_for_dispatch_key
        assert not key("aten::empty_strided", "PrivateUse1") and not key("aten::add.out", "PrivateUse1")
        """,
        register=False,
    )


@contract("R-01")
def test_registering_again_does_nothing():
    mojo = torch.mojo
    generate = torch.Tensor.mojo
    torch_mojo_backend.register_mojo_devices()
    assert torch.mojo is mojo and torch.Tensor.mojo is generate


@contract("R-01")
def test_threads_may_register_at_once():
    run_python(
        """
        import sys, threading, torch, torch_mojo_backend
        sys.setswitchinterval(1e-6)
        barrier, failures, seen = threading.Barrier(8), [], []
        def register():
            barrier.wait()
            try:
                torch_mojo_backend.register_mojo_devices()
                # Whoever returns from the call finds all of it done.
                seen.append((torch.accelerator.current_accelerator().type, torch.mojo.device_count(),
                             torch.ones(2, device="mojo").sum().item()))
            except BaseException as failure:
                failures.append(failure)
        threads = [threading.Thread(target=register) for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        assert not failures, failures
        assert seen == [("mojo", 1, 2.0)] * 8, seen
        """,
        register=False,
    )


@contract("R-02")
def test_mojo_is_the_current_accelerator():
    assert torch.accelerator.current_accelerator() == torch.device("mojo")
    assert torch.accelerator.current_accelerator(check_available=True) == torch.device("mojo")
    assert torch.get_device_module() is torch.mojo and torch.get_device_module("mojo:1") is torch.mojo
    # An out-of-tree backend comes before every built-in one in torch's choice: that is what makes the row hold in a
    # build with CUDA, where the type is the same.
    assert torch._C._get_privateuse1_backend_name() == "mojo"
    assert torch.empty(1, device="mojo").device == torch.device("mojo", 0)


@contract("R-03")
def test_devices_are_counted_and_selected():
    accelerator = torch.accelerator
    assert accelerator.is_available() and accelerator.device_count() == 2
    assert accelerator.current_device_index() == 0
    accelerator.set_device_index(1)
    assert accelerator.current_device_index() == 1 and torch.empty(1, device="mojo").device.index == 1
    accelerator.set_device_index(torch.device("mojo", 0))
    with accelerator.device_index(1):
        assert accelerator.current_device_index() == 1
        with accelerator.device_index(0):
            assert accelerator.current_device_index() == 0
        assert accelerator.current_device_index() == 1
    assert accelerator.current_device_index() == 0
    with pytest.raises(KeyError), accelerator.device_index(1):
        raise KeyError
    assert accelerator.current_device_index() == 0


@contract("R-03")
@pytest.mark.parametrize(
    "use",
    [
        lambda i: torch.accelerator.set_device_index(i),
        lambda i: torch.accelerator.current_stream(i),
        lambda i: torch.accelerator.synchronize(i),
        lambda i: torch.accelerator.device_index(i).__enter__(),
        lambda i: torch.Stream(torch.device("mojo", i)),
        lambda i: torch.empty(1, device=torch.device("mojo", i)),
        lambda i: torch.zeros(1).to(torch.device("mojo", i)),
        lambda i: torch.accelerator.get_memory_info(i),
        lambda i: torch.mojo.set_device(i),
        lambda i: torch.mojo.device(i).__enter__(),
        lambda i: torch.mojo.get_device_properties(i),
        lambda i: torch.mojo.get_device_name(i),
        lambda i: torch.mojo.default_stream(i),
        lambda i: torch.mojo.get_rng_state(i),
        lambda i: torch.mojo.mem_get_info(i),
        lambda i: torch.mojo.priority_range(i),
        lambda i: torch.Generator(torch.device("mojo", i)),
    ],
)
@pytest.mark.parametrize("index", [2, 100])
def test_an_index_out_of_range_names_the_range(use, index):
    torch.empty(1, device="mojo")  # synchronize is a no-op before the first use
    with pytest.raises(RuntimeError, match=rf"(?s){index}.*(0 to 1|\[0, 1\]|\[0, 2\)|0\.\.1|0 and 1)"):
        use(index)
    assert torch.accelerator.current_device_index() == 0
    assert torch.ones(1, device="mojo").item() == 1


@contract("R-03")
def test_the_current_device_belongs_to_the_thread():
    torch.accelerator.set_device_index(1)
    assert in_thread(torch.accelerator.current_device_index) == 0
    in_thread(lambda: torch.accelerator.set_device_index(0))
    assert torch.accelerator.current_device_index() == 1
    torch.accelerator.set_device_index(0)


DEVICE_MODULE_NAMES = [
    "is_available", "is_initialized", "init", "_lazy_init", "_is_in_bad_fork", "device_count", "current_device",
    "set_device", "device", "device_of", "current_stream", "set_stream", "default_stream", "stream",
    "StreamContext", "synchronize", "Stream", "Event", "get_device_name", "get_device_properties",
    "get_device_capability", "mem_get_info", "memory_allocated", "max_memory_allocated", "memory_reserved",
    "max_memory_reserved", "memory_stats", "memory_stats_as_nested_dict", "memory_summary", "memory_snapshot",
    "reset_peak_memory_stats", "reset_accumulated_memory_stats", "reset_max_memory_allocated",
    "reset_max_memory_cached", "empty_cache", "set_per_process_memory_fraction", "get_per_process_memory_fraction",
    "host_memory_stats", "caching_allocator_alloc", "caching_allocator_delete", "manual_seed", "manual_seed_all",
    "seed", "seed_all", "initial_seed", "get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all",
    "default_generators", "get_amp_supported_dtype", "is_bf16_supported", "_sleep", "priority_range",
    "stream_priority", "is_current_stream_capturing", "can_device_access_peer",
]  # fmt: skip


@contract("R-04")
@pytest.mark.parametrize("name", DEVICE_MODULE_NAMES)
def test_torch_mojo_has_the_names_of_device_modules(name):
    assert hasattr(torch.mojo, name)


@contract("R-04")
def test_torch_mojo_has_no_classes_of_its_own_for_streams_and_events():
    assert torch.mojo.Stream is torch.Stream and torch.mojo.Event is torch.Event
    import torch.mojo as by_import

    assert by_import is torch.mojo


@contract("R-04")
def test_torch_mojo_and_torch_accelerator_never_disagree():
    mojo, accelerator = torch.mojo, torch.accelerator
    side, far = torch.Stream("mojo:0"), torch.Stream("mojo:1")
    kept = [torch.empty(1000, device="mojo:0"), torch.empty(3000, device="mojo:1")]

    def agree():
        assert mojo.device_count() == accelerator.device_count()
        assert mojo.is_available() == accelerator.is_available()
        assert mojo.current_device() == accelerator.current_device_index()
        for device in (None, 0, 1, "mojo:1", torch.device("mojo:0"), torch.device("mojo")):
            assert mojo.current_stream(device) == accelerator.current_stream(device)
            assert mojo.memory_stats(device) == accelerator.memory_stats(device)
            assert mojo.mem_get_info(device)[1] == accelerator.get_memory_info(device)[1]
            for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
                assert getattr(mojo, name)(device) == getattr(accelerator, name)(device)

    agree()
    # Each change is made on one side and seen on both.
    mojo.set_device(1)
    agree()
    accelerator.set_device_index(0)
    mojo.set_stream(side)
    agree()
    assert accelerator.current_stream() == side
    accelerator.set_stream(far)
    agree()
    assert mojo.current_stream() == far and mojo.current_device() == 1
    mojo.set_stream(mojo.default_stream(1))
    with mojo.device(0), mojo.stream(side):
        agree()
    with accelerator.device_index(1), far:
        agree()
        assert mojo.current_stream() == far
    mojo.set_device(0)
    mojo.set_stream(mojo.default_stream(0))
    del kept[0]
    mojo.reset_peak_memory_stats(0)
    agree()


@contract("R-04")
def test_device_context_managers():
    mojo = torch.mojo
    with mojo.device(1):
        assert mojo.current_device() == 1
        with mojo.device("mojo:0"):
            assert mojo.current_device() == 0
        with mojo.device(None), mojo.device(-1):
            assert mojo.current_device() == 1
        with mojo.device_of(torch.empty(1)):
            assert mojo.current_device() == 1
        with mojo.device_of(torch.empty(1, device="mojo:0")):
            assert mojo.current_device() == 0
    assert mojo.current_device() == 0
    with pytest.raises(KeyError), mojo.device(1):
        raise KeyError
    assert mojo.current_device() == 0


@contract("R-04")
def test_stream_context_manager_of_the_module():
    mojo = torch.mojo
    here, side, far = mojo.current_stream(), torch.Stream("mojo:0"), torch.Stream("mojo:1")
    with mojo.stream(None):
        assert mojo.current_stream() == here
    with mojo.stream(side):
        assert mojo.current_stream() == side
        context = mojo.stream(far)
        with context, context:
            assert mojo.current_stream() == far and mojo.current_device() == 1
        assert mojo.current_stream() == side and mojo.current_stream(1) == mojo.default_stream(1)
    assert mojo.current_stream() == here
    with pytest.raises(KeyError), mojo.stream(far):
        raise KeyError
    assert mojo.current_stream() == here and mojo.current_device() == 0


@contract("R-04")
def test_arguments_of_a_wrong_type_raise_and_change_nothing():
    mojo, here = torch.mojo, torch.mojo.current_stream()
    for use in (
        lambda: mojo.set_stream(3),
        lambda: mojo.stream("side"),
        lambda: mojo.stream_priority(0),
        lambda: mojo.set_device(1.5),
        lambda: mojo.set_device(None),
        lambda: mojo.set_device("mojo"),
        lambda: mojo.synchronize("cpu"),
        lambda: mojo.synchronize(torch.device("meta")),
        lambda: mojo.synchronize(here),
        lambda: mojo.memory_allocated("cpu"),
        lambda: mojo.current_stream("cuda:0"),
        lambda: torch.accelerator.set_stream("x"),
        lambda: torch.accelerator.synchronize("cpu"),
        lambda: mojo.set_per_process_memory_fraction(1.5),
        lambda: mojo.set_per_process_memory_fraction("half"),
        lambda: mojo.caching_allocator_alloc(-1),
        lambda: mojo.caching_allocator_delete(12345),
    ):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            use()
        assert mojo.current_stream() == here and mojo.current_device() == 0


@contract("R-04")
def test_properties_of_a_device():
    found = torch.mojo.get_device_properties(1)
    assert found.driver == "host" and found.name and found.name == torch.mojo.get_device_name("mojo:1")
    assert found.total_memory == torch.mojo.mem_get_info(1)[1] > 0
    assert found.multi_processor_count >= 1 and found.warp_size >= 1
    assert torch.mojo.get_device_capability() == (found.major, found.minor)
    assert torch.float32 in torch.accelerator.get_device_capability()["supported_dtypes"]
    assert torch.mojo.is_bf16_supported()
    assert set(torch.mojo.get_amp_supported_dtype()) == {torch.float16, torch.bfloat16}
    assert torch.mojo.can_device_access_peer(0, 1) and not torch.mojo.can_device_access_peer(0, 0)
    assert torch.mojo.is_current_stream_capturing() is False


@contract("R-04")
def test_sleep_keeps_the_current_stream_busy_and_holds_no_worker():
    run_python(
        """
        side = torch.Stream("mojo:0")
        sleepers = [torch.Stream("mojo:0") for _ in range(50)]
        start, end = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
        with side:
            start.record()
            torch.mojo._sleep(int(40 * 1.5e6))
            end.record()
        assert not side.query()
        for sleeper in sleepers:      # 50 times 200 ms, which must not come one after another, on one worker
            with sleeper:
                torch.mojo._sleep(int(200 * 1.5e6))
        first, last = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
        first.record()
        x = torch.ones(1000, device="mojo:0").sum().item()
        last.record(); last.synchronize()
        assert x == 1000 and not any(s.query() for s in sleepers[1:]), "the sleepers held the worker"
        end.synchronize()
        assert 40 <= start.elapsed_time(end)
        for sleeper in sleepers:
            sleeper.synchronize()
        """,
        HOST_WORKERS="1",
    )


@contract("R-04")
def test_initialisation_is_lazy():
    run_python(
        """
        assert not torch.mojo.is_initialized() and not torch.mojo._initialized
        assert torch.mojo.is_available() and torch.mojo.device_count() == 1 and not torch.mojo._is_in_bad_fork()
        torch.manual_seed(1)
        assert not torch.mojo.is_initialized()
        assert torch.mojo.memory_stats() == {} and torch.mojo.memory_snapshot() == []
        assert torch.mojo.host_memory_stats() == {}
        torch.mojo.synchronize()
        torch.empty(1, device="mojo")
        assert torch.mojo.is_initialized() and torch.mojo._initialized
        torch.mojo.init()
        torch.mojo._lazy_init()
        """
    )


@contract("R-04")
def test_fake_tensors_and_checkpointing_find_what_they_need():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.checkpoint import checkpoint

    with FakeTensorMode():
        assert torch.empty(2, 3, device="mojo").mm(torch.empty(3, 4, device="mojo:0")).device == torch.device("mojo", 0)

    # Checkpointing must save and restore the generator: the recomputed dropout mask is the first one.
    x = torch.ones(1000, device="mojo", requires_grad=True)
    y = checkpoint(lambda t: torch.nn.functional.dropout(t, 0.5), x, use_reentrant=False)
    kept = (y.detach() != 0).cpu()
    torch.rand(10, device="mojo")
    y.sum().backward()
    assert torch.equal((x.grad != 0).cpu(), kept) and 0 < int(kept.sum()) < 1000


@contract("R-04")
def test_the_generated_methods():
    assert torch.ones(2).mojo().device == torch.device("mojo", 0) and torch.ones(2).mojo(1).device.index == 1
    assert torch.ones(2).mojo().is_mojo and not torch.ones(2).is_mojo
    assert next(torch.nn.Linear(2, 2).mojo().parameters()).is_mojo
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3)])
    assert packed.mojo().is_mojo
    assert torch.ones(2).untyped_storage().mojo().device.type == "mojo"


@contract("R-05")
def test_the_driver_is_chosen_once():
    run_python(
        """
        import os
        from torch_mojo_backend import _C
        assert _C.driver_name() == "host"
        os.environ["TORCH_MOJO_BACKEND_DRIVER"] = "cuda"
        assert _C.driver_name() == "host" and torch.mojo.get_device_properties().driver == "host"
        """,
        DRIVER="host",
    )
    run_python('assert torch.mojo.get_device_properties().driver == "host"', DRIVER="auto")


@contract("R-06")
def test_number_and_memory_of_host_devices():
    run_python("assert torch.accelerator.device_count() == 1")
    run_python(
        """
        assert torch.accelerator.device_count() == 3
        for i in range(3):
            assert torch.accelerator.get_memory_info(i)[1] == 64 << 20
            x = torch.empty(48 << 20, dtype=torch.uint8, device=torch.device("mojo", i))
            try:
                torch.empty(32 << 20, dtype=torch.uint8, device=torch.device("mojo", i))
            except torch.OutOfMemoryError:
                continue
            raise SystemExit(f"device {i} gave more than it has")
        """,
        HOST_DEVICES="3",
        HOST_MEMORY="64M",
    )


@contract("R-06")
def test_host_devices_divide_three_quarters_of_the_memory():
    run_python(
        """
        import os
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
            if os.path.exists(name) and (text := open(name).read().strip()).isdigit():
                machine = min(machine, int(text))
        totals = {torch.accelerator.get_memory_info(i)[1] for i in range(2)}
        assert len(totals) == 1 and 0 < totals.pop() <= machine * 3 // 8 + 4096
        """,
        HOST_DEVICES="2",
    )


@contract("R-07")
def test_another_torch_is_one_clear_error():
    done = run_python(
        """
        import sys, torch
        from torch.torch_version import TorchVersion
        torch.__version__ = TorchVersion("2.99.1+cpu")
        try:
            import torch_mojo_backend
        except ImportError as error:
            print(error)
        else:
            raise SystemExit("imported")
        assert "torch_mojo_backend._C" not in sys.modules
        assert torch._C._get_privateuse1_backend_name() == "privateuseone" and not hasattr(torch, "mojo")
        """,
        register=False,
    )
    from torch_mojo_backend import _build_info

    wanted = "{}.{}".format(*_build_info.torch_major_minor)
    assert "2.99.1+cpu" in done.stdout and wanted in done.stdout and done.stderr == ""
    assert _build_info.torch_major_minor >= (2, 11)


def test_the_version_check_reads_versions():
    from torch_mojo_backend._torch_version import major_minor

    assert major_minor("2.13.0+cpu") == (2, 13) and major_minor("2.13") == (2, 13)
    assert major_minor("2.14.0a0+git123") == (2, 14) and major_minor("nightly") is None


@contract("R-01")
@pytest.mark.parametrize("how", ["renamed", "module"])
def test_another_backend_in_the_place_is_one_clear_error(how):
    done = run_python(
        f"""
        import sys, types, torch, torch_mojo_backend
        if {how!r} == "renamed":
            torch.utils.rename_privateuse1_backend("other")
        else:
            torch.mojo = types.ModuleType("mojo")
        before = set(vars(torch)), set(vars(torch.Tensor)), torch._C._get_privateuse1_backend_name()
        for _ in range(2):
            try:
                torch_mojo_backend.register_mojo_devices()
            except RuntimeError as error:
                print(error)
            else:
                raise SystemExit("registered")
        assert before == (set(vars(torch)), set(vars(torch.Tensor)), torch._C._get_privateuse1_backend_name())
        """,
        register=False,
    )
    assert "mojo backend: " in done.stdout
    assert ("'other' is already registered" if how == "renamed" else "torch.mojo already exists") in done.stdout


@contract("R-01")
def test_registration_has_no_entry_point():
    from importlib.metadata import entry_points

    assert not [e for e in entry_points(group="torch.backends") if e.value.startswith("torch_mojo_backend")]


@contract("R-03", "O-03")
def test_each_thread_starts_on_the_first_device():
    torch.accelerator.set_device_index(1)
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(torch.accelerator.current_device_index())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.accelerator.set_device_index(0)
    assert found == [0] * 4


@contract("R-04")
@pytest.mark.filterwarnings("ignore:Casting complex values", "ignore:ComplexHalf support")
def test_the_supported_dtypes_are_exact(device):
    supported = torch.accelerator.get_device_capability()["supported_dtypes"]
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}

    def works(dtype: torch.dtype) -> bool:
        try:
            torch.ones(2).to(dtype).to(device).to(torch.float32)
            torch.ones(2, device=device).to(dtype)
            torch.accelerator.synchronize()
            return torch.empty(2, dtype=dtype, device=device).dtype == dtype
        except (RuntimeError, TypeError):
            return False

    assert {dtype for dtype in dtypes if works(dtype)} == supported


@contract("R-03")
@pytest.mark.parametrize("index", [127, 128, 1000, 2**40])
def test_an_index_that_torch_cannot_hold_names_the_range(index):
    torch.empty(1, device="mojo")  # synchronize is a no-op before the first use
    for use in (torch.mojo.set_device, torch.mojo.synchronize, torch.mojo.current_stream, torch.mojo.get_device_name):
        with pytest.raises(RuntimeError, match=f"(?s){index}.*range"):
            use(index)


@pytest.mark.parametrize("cycles", [-5, 2**70])
def test_sleep_takes_a_number_of_cycles(cycles):
    with pytest.raises(ValueError, match="number of cycles"):
        torch.mojo._sleep(cycles)
