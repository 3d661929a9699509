"""What torch reaches by other ways than streams and ops: hooks, generators' shared state, lazy clones, the profiler's
memory, autocast."""

import pytest
import torch
from contract import contract


@contract("R-03")
def test_hooks_and_guard_are_of_one_mind(device, other):
    c = torch._C
    assert c._accelerator_hooks_device_count() == torch.accelerator.device_count()
    c._accelerator_hooks_set_current_device(1)
    assert torch.accelerator.current_device_index() == c._accelerator_hooks_get_current_device() == 1
    assert c._accelerator_hooks_exchange_device(0) == 1
    assert c._accelerator_hooks_maybe_exchange_device(1) == 0
    assert torch.empty(1, device="mojo").device == other
    with pytest.raises(RuntimeError, match="0 to 1"):
        c._accelerator_hooks_set_current_device(5)
    assert torch.accelerator.current_device_index() == 1


def test_generators_may_share_their_state(device):
    one = torch.Generator(device).manual_seed(3)
    two = torch.Generator(device)
    two.graphsafe_set_state(one.graphsafe_get_state())
    torch.rand(2, device=device, generator=one)
    assert two.get_offset() == one.get_offset() == 1 and two.initial_seed() == 3
    copy = one.clone_state()
    torch.rand(2, device=device, generator=one)
    assert copy.get_offset() == 1 and one.get_offset() == 2
    with pytest.raises(RuntimeError, match="generator of a mojo device"):
        one.graphsafe_set_state(torch.Generator("cpu"))


def test_a_generator_of_another_device_is_refused(device, other):
    with pytest.raises(RuntimeError, match="Expected a .mojo:0. generator device but found .mojo:1."):
        torch.rand(2, device=device, generator=torch.Generator(other))
    with pytest.raises(RuntimeError, match=r"(?i)expected a 'mojo' device type for generator but found 'cpu'"):
        torch.rand(2, device=device, generator=torch.Generator("cpu"))


def test_copy_on_write_storage_is_refused_and_the_tensor_unharmed(device, stream):
    # Core's copy-on-write would take the allocator's handle for the data.
    with stream:
        x = torch.arange(4.0, device=device)
        with pytest.raises(RuntimeError):
            torch._lazy_clone(x)
        assert x.add_(1).tolist() == [1, 2, 3, 4]


def test_the_profiler_sees_allocations_and_frees(device):
    torch.empty(1, device=device)
    cpu = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[cpu], profile_memory=True) as profile:
        x = torch.empty(1024, device=device)
        del x
    moved = [event.device_memory_usage for event in profile.events() if event.device_memory_usage]
    assert moved == [4096, -4096]


def test_the_profiler_sees_out_of_memory(device):
    cpu = torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[cpu], profile_memory=True) as profile:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 50, dtype=torch.uint8, device=device)
    assert any(event.name == "[OutOfMemory]" for event in profile.events())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(device, dtype):
    a = torch.randn(4, 4, device=device)
    weight = torch.randn(4, 4, device=device, requires_grad=True)
    with torch.autocast("mojo", dtype=dtype):
        product = a @ weight
        assert product.dtype == dtype
        assert product.softmax(0).dtype == torch.float32
        assert torch.cat([product, a]).dtype == torch.float32
        with torch.autocast("mojo", enabled=False):
            assert (a @ weight).dtype == torch.float32
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
            torch.nn.functional.binary_cross_entropy(torch.rand(3, device=device), torch.rand(3, device=device))
    product.float().sum().backward()
    assert weight.grad.dtype == torch.float32
    torch.testing.assert_close(product.float().cpu(), a.cpu() @ weight.detach().cpu(), atol=0.1, rtol=0.1)
    assert (a @ a).dtype == torch.float32
