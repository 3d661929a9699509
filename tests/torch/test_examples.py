"""The training examples: they learn, continue exactly, give CPU's losses on the device, and never wait in a step."""

import csv
import itertools
import math
import os
import pathlib
import signal
import subprocess
import sys
import warnings

import pytest
import torch
from contract import contract
from torch_mojo_backend.testing import Gate, assert_no_host_wait, schedule

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import train_gpt  # noqa: E402
import train_resnet  # noqa: E402
from _shared.history import History  # noqa: E402
from _shared.progress import Progress  # noqa: E402
from _shared.state import State, replacing  # noqa: E402
from _shared.upload import Uploader  # noqa: E402

SCRIPTS = {"gpt": train_gpt, "resnet": train_resnet}
SMALL = {
    "gpt": ["--context", "16", "--batch-size", "2"],
    "resnet": ["--image-size", "8", "--batch-size", "4", "--images", "14"],  # an epoch is three steps
}
# One option or more from each part of a training step.
FULL_PRECISION = {
    "gpt": [
        "",
        "--optimizer-impl foreach",
        "--optimizer-impl loop",
        "--optimizer adam --accumulate 3",
        "--optimizer sgd --clip 0.1",
        "--compile eager",
        "--compile aot_eager",
    ],
    "resnet": [
        "",
        "--optimizer-impl foreach",
        "--optimizer-impl loop",
        "--channels-last",
        "--momentum 0 --label-smoothing 0",
        "--compile aot_eager",
    ],
}
MIXED_PRECISION = {
    "gpt": ["--amp bf16", "--amp f16 --accumulate 2", "--amp bf16 --compile eager"],
    "resnet": ["--amp bf16", "--amp f16", "--amp bf16 --channels-last"],
}


def each(*tables):
    """Parameters `script, options`; what takes long is left to the slow tests."""
    return pytest.mark.parametrize("script, options", [
        pytest.param(script, text, id=f"{script} {text}", marks=[pytest.mark.slow] if "aot_eager" in text else [])
        for table in tables for script in table for text in table[script]
    ])  # fmt: skip


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
both_scripts = pytest.mark.parametrize("script", SCRIPTS)


@pytest.fixture(autouse=True)
def one_thread():
    """Work this small is slower on two threads, above all while another process uses the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def no_curve(request, monkeypatch):
    """Drawing takes longer than training here; it has tests of its own."""
    if "curve" not in request.node.name and "matplotlib" not in request.node.name:
        monkeypatch.setattr(State, "draw", lambda self: True)


@pytest.fixture(autouse=True)
def no_warnings():
    """What a user would see as noise fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def command(script, out, device, options):
    return ["--device", device, "--out", str(out), "--val-batches", "2", *SMALL[script], *options.split()]


def train(script, out, device="mojo", options="--steps 6"):
    """The rows of the table that a run in this process leaves behind."""
    assert SCRIPTS[script].main(command(script, out, device, options)) == 0
    return table(out)


def table(out):
    with open(out / "loss.csv", newline="") as file:
        return list(csv.DictReader(file))


def trainer_of(script, out, device="mojo", options="--steps 6"):
    return SCRIPTS[script].Trainer(*SCRIPTS[script].parse(command(script, out, device, options)))


def weights(out):
    return torch.load(out / "checkpoint.pt", map_location="cpu", weights_only=True)["model"]


def error_of(script, capsys, *options):
    """The single line with which the script refuses these options."""
    with pytest.raises(SystemExit) as end:
        SCRIPTS[script].main([*options])
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.out == "" and shown.err.count("\n") == 1, shown
    return shown.err


# --- Values -----------------------------------------------------------------------------------------------------------


@each(FULL_PRECISION)
def test_the_device_gives_cpus_losses(script, options, tmp_path):
    """Bit for bit: each op runs CPU's kernel on the same values, in the same order, with the same number of threads."""
    cpu, mojo = (train(script, tmp_path / d, d, f"--steps 6 --val-every 3 {options}") for d in ("cpu", "mojo"))
    assert mojo == cpu
    assert [row["step"] for row in cpu if row["validation_loss"]] == ["3", "6"]
    mine, theirs = weights(tmp_path / "mojo"), weights(tmp_path / "cpu")
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@both_scripts
def test_the_device_gives_cpus_losses_on_two_threads(script, tmp_path):
    torch.set_num_threads(2)
    size = {"gpt": "--context 64 --batch-size 8", "resnet": "--image-size 32 --batch-size 14"}[script]
    assert train(script, tmp_path / "mojo", "mojo", f"--steps 3 {size}") == train(
        script, tmp_path / "cpu", "cpu", f"--steps 3 {size}"
    )


@each(MIXED_PRECISION)
def test_the_device_gives_nearly_cpus_losses_in_mixed_precision(script, options, tmp_path):
    """Not bit for bit: CPU's autocast runs other ops in the narrow type than the device's, whose lists are CUDA's."""
    cpu, mojo = (train(script, tmp_path / d, d, f"--steps 6 --val-every 3 {options}") for d in ("cpu", "mojo"))
    for name in ("loss", "validation_loss"):
        mine, theirs = ([float(row[name]) for row in rows if row[name]] for rows in (mojo, cpu))
        assert mine == pytest.approx(theirs, rel=0.02)
    assert mojo != train(script, tmp_path / "wide", "mojo", "--steps 6 --val-every 3")  # it was narrow


@contract("M-10", "M-11")
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 20), marks=pytest.mark.slow)])
@both_scripts
def test_the_losses_do_not_depend_on_the_schedule(script, seeds, tmp_path):
    """Uploads, backward and validation under orders that only the waits constrain; with dropout in the GPT."""
    options = "--steps 4 --val-every 2 --log-every 0" + (" --dropout 0.2" if script == "gpt" else "")
    expected = train(script, tmp_path / "fifo", options=options)
    for number in seeds:
        with schedule(number):
            assert train(script, tmp_path / str(number), options=options) == expected, number


@both_scripts
def test_the_loss_falls(script, tmp_path):
    options = {
        "gpt": "--steps 60 --batch-size 8 --lr 3e-3",
        "resnet": "--steps 40 --batch-size 16 --images 160 --image-size 16 --classes 4",
    }[script]
    rows = train(script, tmp_path, options=f"{options} --val-every 20")
    losses = [float(row["loss"]) for row in rows]
    assert sum(losses[-5:]) < 0.75 * sum(losses[:5])
    validations = [row for row in rows if row["validation_loss"]]
    assert float(validations[-1]["validation_loss"]) < float(validations[0]["validation_loss"])
    if script == "resnet":
        assert float(validations[-1]["validation_accuracy"]) > 0.7  # one in four by chance


def test_the_large_sizes_are_the_published_ones():
    def parameters(model):
        return sum(p.numel() for p in model.parameters())

    with torch.device("meta"):
        gpt2 = train_gpt.SIZES["gpt2"]
        assert parameters(train_gpt.GPT(gpt2, gpt2.context, 0.0)) == 124_439_808
        assert parameters(train_resnet.ResNet(train_resnet.SIZES["18"], 1000)) == 11_689_512
        assert parameters(train_resnet.ResNet(train_resnet.SIZES["50"], 1000)) == 25_557_032


# --- No waits ---------------------------------------------------------------------------------------------------------


@contract("O-01", "O-04", "C-01")
@each(FULL_PRECISION, MIXED_PRECISION)
def test_a_step_makes_no_host_wait(script, options, tmp_path):
    """With the device held, two steps are queued whole; a wait in any thread would last until the gate times out."""
    options = f"--steps 6 {options}"
    trainer = trainer_of(script, tmp_path, options=options)
    with Gate(), assert_no_host_wait():
        losses = [trainer.step() for _ in range(2)]
    rows = train(script, tmp_path, options=options)
    assert torch.stack(losses).tolist() == [float(row["loss"]) for row in rows[:2]]


def test_a_batch_travels_while_the_device_computes(device):
    """The uploads of the second batch are complete although the stream that computes on the first is held."""
    upload = Uploader(device)
    batches = upload((torch.full((1000,), float(i)).pin_memory(),) for i in range(3))
    with Gate():
        (first,) = next(batches)
        total = first.sum()
        upload.copies.synchronize()
        assert not torch.accelerator.current_stream().query()
    assert total.item() == 0 and [batch.sum().item() for (batch,) in batches] == [1000, 2000]


class WithoutWait(Uploader):
    def _hand_over(self, batch):
        for tensor in batch:
            tensor.record_stream(torch.accelerator.current_stream())


class WithoutRecord(Uploader):
    def _hand_over(self, batch):
        torch.accelerator.current_stream().wait_stream(self.copies)


@contract("M-01", "M-02")
@pytest.mark.parametrize("kind, right", [(Uploader, True), (WithoutWait, False), (WithoutRecord, False)])
def test_the_uploader_needs_each_of_its_calls(kind, right, device):
    """Right under every schedule; without the one or the other call, batches are wrong under some."""
    upload = kind(device)
    wrong = []
    for number in range(50):
        values = [6.0 * number + i for i in range(6)]  # not those that the memory held before
        with schedule(number):
            found = []
            for (batch,) in upload((torch.full((1 << 14,), value).pin_memory(),) for value in values):
                found.append(batch.amax())
                del batch
            if torch.stack(found).tolist() != values:
                wrong.append(number)
    assert (wrong == []) == right


# --- Continuing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device_name", ["mojo", "cpu"])
@pytest.mark.parametrize(
    "script, options",
    [
        ("gpt", "--dropout 0.1 --amp bf16"),
        ("gpt", "--dropout 0.1 --amp f16 --accumulate 2"),
        ("gpt", "--optimizer-impl loop"),
        ("resnet", ""),
        ("resnet", "--amp f16 --channels-last"),
    ],
)
def test_a_resumed_run_is_the_uninterrupted_one(script, options, device_name, tmp_path, capsys):
    options = f"--steps 8 --val-every 2 {options}"
    expected = train(script, tmp_path / "whole", device_name, options)
    parts = tmp_path / "parts"
    assert len(train(script, parts, device_name, f"{options} --stop-at 3")) == 3
    assert "stopped at step 3 of 8: --resume goes on from there" in capsys.readouterr().out
    torch.rand(7), torch.rand(7, device="mojo")  # whatever was drawn in between
    assert train(script, parts, device_name, f"{options} --resume --stop-at 5") == expected[:5]
    assert f"resumed from {parts / 'checkpoint.pt'} at step 3 of 8" in capsys.readouterr().out
    assert train(script, parts, device_name, f"{options} --resume") == expected
    mine, theirs = weights(parts), weights(tmp_path / "whole")
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)


@both_scripts
def test_a_run_that_ended_can_go_on_for_longer(script, tmp_path, capsys):
    before = train(script, tmp_path, options="--steps 3")
    capsys.readouterr()
    assert train(script, tmp_path, options="--steps 3 --resume") == before  # nothing is left to do
    rows = train(script, tmp_path, options="--steps 5 --resume")
    assert len(rows) == 5 and rows[:3] == before


@pytest.mark.parametrize("first, second", [("cpu", "mojo"), ("mojo", "cpu"), ("mojo", "mojo:1")])
@both_scripts
def test_a_checkpoint_moves_to_another_device(script, first, second, tmp_path, capsys, other):
    expected = train(script, tmp_path / "whole", "cpu")
    capsys.readouterr()
    train(script, tmp_path / "parts", first, "--steps 6 --stop-at 3")
    assert train(script, tmp_path / "parts", second, "--steps 6 --resume") == expected
    assert ("from another type of device" in capsys.readouterr().out) == ("cpu" in (first, second))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@both_scripts
def test_an_interrupted_run_can_be_resumed(script, number, tmp_path, capsys, monkeypatch):
    module = SCRIPTS[script]
    options = "--steps 8 --checkpoint-every 0"
    expected = train(script, tmp_path / "whole", options=options)
    capsys.readouterr()
    parts, handlers = tmp_path / "parts", [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with monkeypatch.context() as patch:

        def step(self, whole=module.Trainer.step):
            if self.state.step == 2:
                signal.raise_signal(number)
            return whole(self)

        patch.setattr(module.Trainer, "step", step)
        assert module.main(command(script, parts, "mojo", options)) == 128 + number
    *_, last = capsys.readouterr().out.splitlines()
    assert last == f"interrupted at step 3 of 8: {parts}/checkpoint.pt is written, --resume goes on from there"
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert [row["loss"] for row in table(parts)] == [row["loss"] for row in expected[:3]]
    assert train(script, parts, options=f"{options} --resume") == expected


def test_a_second_interrupt_ends_the_run_at_once(tmp_path, monkeypatch):
    def step(self):
        signal.raise_signal(signal.SIGINT)
        for _ in range(10_000):  # Python runs a handler between two of its instructions: one signal at a time
            pass
        signal.raise_signal(signal.SIGINT)
        for _ in range(10_000):
            pass

    monkeypatch.setattr(train_gpt.Trainer, "step", step)
    with pytest.raises(KeyboardInterrupt):
        train("gpt", tmp_path)


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_reaches_the_workers_too(tmp_path):
    options = "--steps 400 --log-every 1 --val-every 0 --checkpoint-every 0 --workers 1"
    arguments = [sys.executable, str(EXAMPLES / "train_resnet.py"), *command("resnet", tmp_path, "mojo", options)]
    running = subprocess.Popen(arguments, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)  # fmt: skip
    assert any(line.startswith("step   2/400") for line in running.stdout)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert running.returncode == 130 and err == "" and out.splitlines()[-1].startswith("interrupted at step"), out + err
    step = len(table(tmp_path))
    assert 2 <= step < 400
    rows = train("resnet", tmp_path, options=f"{options} --resume --stop-at {step + 2}")
    assert rows == train("resnet", tmp_path / "whole", options=f"{options} --stop-at {step + 2}")


def test_an_interrupted_write_leaves_the_file_before_it(tmp_path):
    path = tmp_path / "file"
    path.write_text("whole")
    with pytest.raises(KeyboardInterrupt), replacing(path) as unfinished:
        unfinished.write_text("half of")
        raise KeyboardInterrupt
    assert path.read_text() == "whole" and list(tmp_path.iterdir()) == [path]
    with replacing(path) as unfinished:
        unfinished.write_text("new")
    assert path.read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_workers_make_the_same_batches(tmp_path):
    expected = train("resnet", tmp_path / "none", options="--steps 5 --val-every 3")
    assert train("resnet", tmp_path / "two", options="--steps 5 --val-every 3 --workers 2") == expected


def test_each_epoch_shows_every_image_once_in_another_order():
    def batches(first, count):
        return list(itertools.islice(train_resnet.Shuffled(count=9, batch=3, seed=5, first=first), count))

    epochs = [list(itertools.chain(*batches(first, 3))) for first in (0, 3)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(9)) and epochs[0] != epochs[1]
    assert all(batches(first, 4) == batches(0, first + 4)[first:] for first in range(7))


# --- What a run leaves behind and says --------------------------------------------------------------------------------


@both_scripts
def test_a_run_leaves_checkpoint_table_and_curve(script, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    train(script, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt", "loss.csv", "loss.png"]
    assert (tmp_path / "loss.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    out = capsys.readouterr().out
    assert "parameters" in out and "on mojo:0" in out and "step 6: validation" in out and "MiB" in out


def test_without_matplotlib_and_tqdm(tmp_path, capsys, monkeypatch):
    for name in ("matplotlib", "matplotlib.figure", "tqdm"):
        monkeypatch.setitem(sys.modules, name, None)
    assert len(train("gpt", tmp_path)) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt", "loss.csv"]
    out = capsys.readouterr().out
    assert out.count("tqdm is not installed: plain progress lines\n") == 1 and "step 6/6  loss" in out
    assert out.count(f"{tmp_path}/loss.png needs matplotlib (pip install matplotlib)\n") == 1


def test_a_terminal_gets_a_progress_bar(capsys, monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress(steps=10, done=2) as progress:
        progress.show(6, "loss 1.5")
        progress.say("a line")
    shown = capsys.readouterr()
    assert "6/10" in shown.err and "loss 1.5" in shown.err and shown.out == "a line\n"


@both_scripts
def test_a_loss_that_is_no_number_ends_the_run(script, tmp_path, capsys):
    options = command(script, tmp_path, "mojo", "--steps 8 --log-every 2 --checkpoint-every 1 --warmup 0 --lr 1e30")
    assert SCRIPTS[script].main(options) == 1
    assert "stopped: the loss of step" in capsys.readouterr().out
    losses = [float(row["loss"]) for row in table(tmp_path)]
    assert len(losses) < 8 and all(map(math.isfinite, losses))


def test_losses_are_read_back_together(device):
    history = History()
    with Gate(), assert_no_host_wait():
        for i in range(3):
            history.add(torch.full((), float(i), device=device))
    assert history.read_back() == [0, 1, 2] and history.read_back() == [] and history.losses == [0, 1, 2]
    history.add(torch.tensor(float("inf"), device=device))
    with pytest.raises(FloatingPointError, match="the loss of step 4 is inf"):
        history.read_back()


def test_other_text(tmp_path):
    text = tmp_path / "text"
    text.write_bytes(bytes(range(256)) * 8)
    assert len(train("gpt", tmp_path / "out", options=f"--steps 6 --data {text}")) == 6


# --- In a process of their own ----------------------------------------------------------------------------------------


def in_a_process(*arguments, **settings):
    """What the process printed."""
    done = subprocess.run([sys.executable, *map(str, arguments)], env=ENVIRONMENT | settings, capture_output=True,
                          text=True, timeout=240)  # fmt: skip
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout


@both_scripts
def test_as_a_program(script, tmp_path):
    """With the default device, and with a curve."""
    out = in_a_process(EXAMPLES / f"train_{script}.py", *SMALL[script], "--steps", 3, "--out", tmp_path)
    assert "on mojo:0" in out and len(table(tmp_path)) == 3
    assert train(script, tmp_path / "here", options="--steps 3 --val-batches 8") == table(tmp_path)


@pytest.mark.slow
def test_on_a_device_with_one_queue(tmp_path):
    options = command("gpt", tmp_path / "one", "mojo", "--steps 4")
    in_a_process(EXAMPLES / "train_gpt.py", *options, TORCH_MOJO_BACKEND_HOST_PROFILE="single-queue")
    assert table(tmp_path / "one") == train("gpt", tmp_path / "many", options="--steps 4")


def test_only_the_device_mojo_imports_the_package(tmp_path):
    code = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import train_gpt, train_resnet
assert train_gpt.main({command("gpt", tmp_path / "gpt", "cpu", "--steps 2")!r}) == 0
assert train_resnet.main({command("resnet", tmp_path / "resnet", "cpu", "--steps 2")!r}) == 0
assert "torch_mojo_backend" not in sys.modules
"""
    in_a_process("-c", code)


# --- Mistakes ---------------------------------------------------------------------------------------------------------


@both_scripts
def test_help_names_every_option(script, capsys):
    with pytest.raises(SystemExit) as end:
        SCRIPTS[script].main(["--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    for option in "device seed steps resume amp compile lr warmup optimizer-impl batch-size size out".split():
        assert f"--{option}" in out
    assert f"python examples/train_{script}.py" in out


@pytest.mark.parametrize(
    "options, said",
    [
        ("--device tpu", "expected mojo, cpu or cuda"),
        ("--device cuda", "finds no device of the type cuda"),
        ("--device mojo:7", "there are 2, counted from 0"),
        ("--steps 0", "--steps: expected a whole number of at least 1, got '0'"),
        ("--steps many", "--steps: expected a whole number of at least 1, got 'many'"),
        ("--lr nan", "--lr: expected a number of at least 0, got 'nan'"),
        ("--seed -1", "--seed: expected a whole number from 0"),
        ("--amp f8", "invalid choice: 'f8'"),
        ("--compile inductor", "the device mojo has no Inductor; use aot_eager"),
        ("--resume --overwrite", "not allowed with"),
        ("--resume", "there is no"),
        ("--batch-size 0", "--batch-size: expected a whole number of at least 1"),
        ("--out /dev/null/x", "--out /dev/null/x: Not a directory"),
        ("--unknown", "unrecognized arguments: --unknown"),
    ],
)
@both_scripts
def test_wrong_options_give_one_line(script, options, said, tmp_path, capsys):
    text = error_of(script, capsys, "--out", str(tmp_path), *options.split())
    assert said in text and "--help lists the options" in text


@pytest.mark.parametrize(
    "script, options, said",
    [
        ("gpt", "--size huge", "invalid choice: 'huge'"),
        ("gpt", "--dropout 1", "--dropout: expected a number of at least 0 and less than 1, got '1'"),
        ("gpt", "--data /no/such/file", "--data /no/such/file: No such file or directory"),
        ("gpt", "--data /dev/null", "a text of 0 bytes is too short"),
        ("resnet", "--size 34", "invalid choice: '34'"),
        ("resnet", "--images 8 --batch-size 9", "--batch-size 9 is more than --images 8"),
        ("resnet", "--workers -1", "--workers: expected a whole number of at least 0"),
    ],
)
def test_wrong_options_of_one_script(script, options, said, tmp_path, capsys):
    assert said in error_of(script, capsys, "--out", str(tmp_path), *options.split())


def test_a_checkpoint_is_not_overwritten_by_accident(tmp_path, capsys):
    train("gpt", tmp_path)
    capsys.readouterr()
    again = command("gpt", tmp_path, "mojo", "--steps 6")
    assert "has a checkpoint: --resume continues it, --overwrite starts anew" in error_of("gpt", capsys, *again)
    assert "was made with --batch-size 2, not 4" in error_of("gpt", capsys, *again, "--resume", "--batch-size", "4")
    assert len(train("gpt", tmp_path, options="--steps 2 --overwrite")) == 2
    assert len(train("gpt", tmp_path, options="--steps 5 --warmup 0 --overwrite")) == 5


def test_a_damaged_checkpoint_is_named(tmp_path, capsys):
    train("gpt", tmp_path)
    whole = (tmp_path / "checkpoint.pt").read_bytes()
    capsys.readouterr()
    for damaged in (b"", b"nonsense", whole[: len(whole) // 2]):
        (tmp_path / "checkpoint.pt").write_bytes(damaged)
        text = error_of("gpt", capsys, *command("gpt", tmp_path, "mojo", "--steps 6 --resume"))
        assert "checkpoint.pt is no checkpoint of this script, or is damaged" in text
    torch.save({"model": {}}, tmp_path / "checkpoint.pt")
    assert "is no checkpoint" in error_of("gpt", capsys, *command("gpt", tmp_path, "mojo", "--steps 6 --resume"))
