"""Training on the device: the losses and weights of the CPU's run, and no wait that nobody asked for."""

from collections.abc import Iterable, Iterator

import pytest
import torch
import torch_mojo_backend
from cpu_reference import FedMasks, RecordedMasks, Tolerance
from torch import Tensor, nn
from torch_mojo_backend.testing import Gate, assert_no_host_wait, schedule
from training_models import OPTIMIZERS, TASKS

STEPS = 10
# The models whose values are not CPU's to the last bit.
TOLERANCES = {
    "lstm": Tolerance("core runs CPU's LSTM in oneDNN, an accelerator's cell by cell", rtol=1e-4, atol=1e-5),
}

every_task = pytest.mark.parametrize("task", TASKS)
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS)
every_implementation = pytest.mark.parametrize("implementation", ["foreach", "fused"])
# With a wait or a record_stream taken out, the tests below fail under one of these two.
QUICK_SEEDS = (1, 3)
SEEDS = [s if s in QUICK_SEEDS else pytest.param(s, marks=pytest.mark.slow) for s in range(20)]


class Trainer:
    """A model, its data and an optimizer on a device."""

    def __init__(self, task: str, optimizer: str, implementation: str, device: torch.device | str, dropout=0.0) -> None:
        self.device = device
        self.model = TASKS[task].model(dropout).to(device)
        self.batches = TASKS[task].batches(STEPS)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters(), **{implementation: True})
        self.losses: list[Tensor] = []

    def uploaded(self) -> Iterator[tuple[Tensor, ...]]:
        for batch in self.batches:
            yield tuple(t.to(self.device, non_blocking=True) for t in batch)

    def step(self, batch: tuple[Tensor, ...]) -> None:
        self.optimizer.zero_grad()
        loss = self.model(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0, foreach=True)
        self.optimizer.step()
        self.losses.append(loss.detach())

    def run(self, batches: Iterable[tuple[Tensor, ...]] | None = None) -> "Trainer":
        for batch in batches or self.uploaded():
            self.step(batch)
        return self


def check_same(ours: Trainer, theirs: Trainer, tolerance: Tolerance | None = None) -> None:
    """Losses, weights and running statistics; and there was something to learn."""
    rtol, atol = (tolerance.rtol, tolerance.atol) if tolerance else (0, 0)
    losses = torch.stack(ours.losses).cpu()
    torch.testing.assert_close(losses, torch.stack(theirs.losses), rtol=rtol, atol=atol, msg=lambda m: f"losses: {m}")
    actual, expected = ours.model.state_dict(), theirs.model.state_dict()
    assert list(actual) == list(expected)
    for name, e in expected.items():
        assert actual[name].device.type == "mojo"
        torch.testing.assert_close(actual[name].cpu(), e, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")
    assert losses[-3:].sum() < losses[:3].sum()


@every_implementation
@every_optimizer
@every_task
def test_training_equals_the_cpus(device, task, optimizer, implementation):
    ours = Trainer(task, optimizer, implementation, device).run()
    check_same(ours, Trainer(task, optimizer, implementation, "cpu").run(), TOLERANCES.get(task))


@pytest.mark.parametrize(
    "optimizer, implementation",
    [
        ("adamw", "foreach"),
        ("sgd", "fused"),
        pytest.param("adamw", "fused", marks=pytest.mark.slow),
        pytest.param("sgd", "foreach", marks=pytest.mark.slow),
        pytest.param("adam", "foreach", marks=pytest.mark.slow),
        pytest.param("adam", "fused", marks=pytest.mark.slow),
    ],
)
@every_task
def test_training_with_dropout_equals_the_cpus_with_the_same_masks(device, task, optimizer, implementation):
    with RecordedMasks() as recorded:
        ours = Trainer(task, optimizer, implementation, device, dropout=0.25).run()
    with FedMasks(recorded.masks) as fed:
        theirs = Trainer(task, optimizer, implementation, "cpu", dropout=0.25).run()
    fed.check_all_used()
    check_same(ours, theirs, TOLERANCES.get(task))


def uploaded_beside(trainer: Trainer, side: torch.Stream) -> Iterator[tuple[Tensor, ...]]:
    """The batches, which another stream uploads and turns over and over."""
    main = torch.accelerator.current_stream()
    for batch in trainer.batches:
        with side:
            ready = tuple(t.to(trainer.device, non_blocking=True) for t in batch)
            for _ in range(4):
                ready = tuple(t.flip(0) for t in ready)
        main.wait_stream(side)
        for t in ready:
            t.record_stream(main)
        yield ready
        del ready  # its memory is the next batch's


@pytest.fixture(scope="module")
def references() -> dict[str, Trainer]:
    """A CPU run of each task."""
    return {task: Trainer(task, "adamw", "foreach", "cpu").run() for task in TASKS}


@pytest.fixture(scope="module")
def side() -> torch.Stream:
    return torch.Stream("mojo:0")


@pytest.mark.parametrize("seed", SEEDS)
@every_task
def test_training_under_an_adversarial_schedule(device, side, references, task, seed):
    """With uploads on a stream of their own: the order of what is not ordered changes nothing."""
    with schedule(seed):
        ours = Trainer(task, "adamw", "foreach", device)
        ours.run(uploaded_beside(ours, side))
        check_same(ours, references[task], TOLERANCES.get(task))


@pytest.mark.parametrize("seed", SEEDS)
def test_dropout_does_not_depend_on_the_schedule(device, seed):
    def losses(chosen: int | None) -> Tensor:
        with schedule(chosen):
            return torch.stack(Trainer("gpt", "sgd", "fused", device, dropout=0.25).run().losses).cpu()

    assert torch.equal(losses(seed), losses(None))


@pytest.mark.parametrize("seed", SEEDS)
def test_two_models_on_two_streams(device, side, references, seed):
    """Their steps interleave; neither sees the other's memory."""
    with schedule(seed):
        main = torch.accelerator.current_stream()
        one, two = (Trainer(task, "adamw", "foreach", device) for task in ("gpt", "mlp"))
        side.wait_stream(main)
        for first, second in zip(one.uploaded(), two.batches, strict=True):
            one.step(first)
            with side:
                two.step(tuple(t.to(device, non_blocking=True) for t in second))
        main.wait_stream(side)
        check_same(one, references["gpt"])
        check_same(two, references["mlp"])


@every_implementation
@every_optimizer
@pytest.mark.parametrize("dropout", [0.0, 0.25])
@every_task
def test_a_training_step_is_queued_without_a_wait(device, task, dropout, optimizer, implementation):
    """Upload, forward, backward, clipping and the optimizer's step, behind a gate that is closed from before the first.

    A wait of autograd's own thread would not return before the gate opens by itself, which raises.
    """
    trainer = Trainer(task, optimizer, implementation, device, dropout)
    torch.accelerator.synchronize()
    torch_mojo_backend._C.reset_op_counts()
    with Gate(timeout=30) as gate, assert_no_host_wait():
        for _, batch in zip(range(2), trainer.uploaded(), strict=False):
            trainer.step(batch)
        assert not gate.is_open
    waited = {name: c["reason"] for name, c in torch_mojo_backend._C.op_counts().items() if c["waited"]}
    assert not waited
    assert all(loss.isfinite() for loss in trainer.losses)


@every_task
def test_bfloat16_autocast_stays_close(device, task):
    """To a float32 run of the CPU. The matrices are multiplied in bfloat16, which has 8 bits."""
    ours = Trainer(task, "adamw", "fused", device)
    products = []
    for layer in ours.model.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            layer.register_forward_hook(lambda _, __, output: products.append(output.dtype))
    for batch in ours.uploaded():
        ours.optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = ours.model(*batch)
        loss.backward()
        nn.utils.clip_grad_norm_(ours.model.parameters(), 1.0)
        ours.optimizer.step()
        ours.losses.append(loss.detach())
    assert set(products) == {torch.bfloat16}
    assert all(p.dtype == p.grad.dtype == torch.float32 for p in ours.model.parameters())
    theirs = Trainer(task, "adamw", "fused", "cpu").run()
    check_same(ours, theirs, Tolerance("bfloat16", rtol=0.03, atol=0.03))
    assert not torch.equal(torch.stack(ours.losses).cpu(), torch.stack(theirs.losses))


@every_task
def test_a_checkpoint_moves_between_devices(device, tmp_path, task):
    """Half a run on the device, saved, and the rest on the CPU, is a whole run on the CPU; and the other way round."""
    for first, second in ((device, "cpu"), ("cpu", device)):
        half = Trainer(task, "adamw", "fused", first)
        for batch in list(half.uploaded())[: STEPS // 2]:
            half.step(batch)
        torch.save([half.model.state_dict(), half.optimizer.state_dict()], tmp_path / "half.pt")
        rest = Trainer(task, "adamw", "fused", second)
        model, optimizer = torch.load(tmp_path / "half.pt", map_location=second)
        rest.model.load_state_dict(model)
        rest.optimizer.load_state_dict(optimizer)
        for batch in list(rest.uploaded())[STEPS // 2 :]:
            rest.step(batch)
        whole = Trainer(task, "adamw", "fused", "cpu").run()
        tolerance = TOLERANCES.get(task)
        rtol, atol = (tolerance.rtol, tolerance.atol) if tolerance else (0, 0)
        for name, e in whole.model.state_dict().items():
            torch.testing.assert_close(rest.model.state_dict()[name].cpu(), e, rtol=rtol, atol=atol)
