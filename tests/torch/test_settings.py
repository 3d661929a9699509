"""Settings, the command line, and input that is wrong: row R-05 and the list of bad input."""

import json
import subprocess
import sys

import pytest
import torch
from contract import contract
from helpers import run_python

# In one process: what a failed registration leaves unchanged is tried out by the next one, the last of which succeeds.
REGISTER_UNDER = """
import json, os, sys, torch, torch_mojo_backend
def state():
    return set(vars(torch)), set(vars(torch.Tensor)), torch._C._get_privateuse1_backend_name()
before, texts = state(), []
for name, value in json.loads(sys.stdin.read()):
    os.environ["TORCH_MOJO_BACKEND_" + name] = value
    try:
        torch_mojo_backend.register_mojo_devices()
    except (RuntimeError, ValueError) as error:
        texts.append(str(error))
    else:
        raise SystemExit(f"registered with {name}={value!r}")
    del os.environ["TORCH_MOJO_BACKEND_" + name]
    assert state() == before and str(torch.accelerator.current_accelerator()) != "mojo"
torch_mojo_backend.register_mojo_devices()
assert torch.ones(2, device="mojo").sum().item() == 2
print(json.dumps(texts))
"""

BAD_SETTINGS = [
    ("DRIVER", "cray", ["host"]),
    ("DRIVER", "", ["host"]),
    ("HOST_DEVICES", "two", ["integer", "1"]),
    ("HOST_DEVICES", "0", ["integer", "1"]),
    ("HOST_DEVICES", "-1", ["integer", "1"]),
    ("HOST_DEVICES", "1000", ["integer", "64"]),
    ("HOST_DEVICES", "2 ", ["integer"]),
    ("HOST_MEMORY", "lots", ["bytes"]),
    ("HOST_MEMORY", "0", ["bytes"]),
    ("HOST_MEMORY", "1.5G", ["bytes"]),
    ("HOST_MEMORY", "99999999999999999999", ["bytes"]),
    ("HOST_PROFILE", "metal", ["multi-queue", "single-queue"]),
    ("HOST_SCHEDULE", "random", ["fifo", "random:SEED"]),
    ("HOST_SCHEDULE", "random:x", ["fifo", "random:SEED"]),
    ("HOST_WORKERS", "0", ["integer"]),
    ("STAGING_BYTES", "many", ["bytes"]),
    ("CHECK", "maybe", ["off"]),
]


@contract("R-05")
def test_a_setting_that_does_not_parse():
    pairs = json.dumps([(name, value) for name, value, _ in BAD_SETTINGS])
    done = run_python(REGISTER_UNDER, register=False, stdin=pairs)
    texts = json.loads(done.stdout)
    assert len(texts) == len(BAD_SETTINGS) and not done.stderr
    for text, (name, value, accepted) in zip(texts, BAD_SETTINGS, strict=True):
        assert f"TORCH_MOJO_BACKEND_{name}" in text and f"'{value}'" in text and "\n" not in text
        for word in accepted:
            assert word in text


@contract("R-05")
def test_a_driver_that_is_not_there():
    from torch_mojo_backend import _C

    if _C.driver_name() != "host":
        pytest.skip("this machine has another driver")
    done = run_python(
        """
        import torch, torch_mojo_backend
        try:
            torch_mojo_backend.register_mojo_devices()
        except RuntimeError as error:
            print(error)
        assert torch._C._get_privateuse1_backend_name() == "privateuseone" and not hasattr(torch, "mojo")
        """,
        register=False,
        DRIVER="cuda",
    )
    assert "cuda" in done.stdout and "TORCH_MOJO_BACKEND_DRIVER" in done.stdout


@contract("R-05")
def test_unknown_names_warn_with_the_nearest_valid_name():
    done = run_python(
        """
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch_mojo_backend.register_mojo_devices()
            torch_mojo_backend.register_mojo_devices()
        texts = [str(w.message) for w in caught if "TORCH_MOJO_BACKEND" in str(w.message)]
        print(*texts, sep="\\n")
        assert caught[0].filename == "<string>", "the warning points at the caller"
        assert torch.accelerator.device_count() == 1
        """.replace("import warnings", "import torch, torch_mojo_backend, warnings", 1),
        register=False,
        HOST_DEVICE="3",
        DRIVERS="host",
    )
    lines = done.stdout.strip().splitlines()
    assert len(lines) == 2
    for name, nearest in (("HOST_DEVICE", "HOST_DEVICES"), ("DRIVERS", "DRIVER")):
        (line,) = [line for line in lines if f"TORCH_MOJO_BACKEND_{name} " in line + " " or f"_{name}'" in line]
        assert f"TORCH_MOJO_BACKEND_{nearest}" in line


@contract("R-05")
def test_the_table_of_settings():
    run_python(
        """
        from torch_mojo_backend import _C
        rows = {row["name"]: row for row in _C.settings()}
        assert all(name.startswith("TORCH_MOJO_BACKEND_") for name in rows)
        assert all(row["description"] and row["accepted"] and row["value"] for row in rows.values())
        devices = rows["TORCH_MOJO_BACKEND_HOST_DEVICES"]
        assert (devices["value"], devices["source"]) == ("2", "environment")
        assert rows["TORCH_MOJO_BACKEND_HOST_PROFILE"]["source"] == "default"
        """,
        HOST_DEVICES="2",
    )


def command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "torch_mojo_backend", *arguments], capture_output=True, text=True, timeout=60
    )


def test_info():
    done = command("info")
    assert done.returncode == 0 and not done.stderr
    import torch_mojo_backend

    for word in (torch_mojo_backend.__version__, str(torch.__version__), "host", "mojo:1", "TORCH_MOJO_BACKEND_DRIVER"):
        assert word in done.stdout
    assert "(environment)" in done.stdout and "(default)" in done.stdout


def test_info_as_json():
    done = command("info", "--json")
    found = json.loads(done.stdout)
    assert found["driver"] == "host" and [d["index"] for d in found["devices"]] == [0, 1]
    for device in found["devices"]:
        assert device["name"] and device["total_memory"] > 0 and device["workers"] >= 1
    settings = {row["name"]: row for row in found["settings"]}
    assert settings["TORCH_MOJO_BACKEND_HOST_DEVICES"]["source"] == "environment"


def test_the_page_of_settings_lists_each_default():
    done = command("docs-settings")
    from torch_mojo_backend import _C

    assert done.returncode == 0
    for row in _C.settings():
        assert f"| `{row['name']}` |" in done.stdout and row["description"] in done.stdout
    assert "| `TORCH_MOJO_BACKEND_HOST_DEVICES` | 1 |" in done.stdout, "the default, whatever is set here"


def test_command_line_errors():
    assert command("frobnicate").returncode == 2 and command().returncode == 2
    assert command("--help").returncode == 0 and "info" in command("--help").stdout
    done = run_python(
        "import sys; from torch_mojo_backend.cli import main; sys.exit(main(['info']))",
        register=False,
        check=False,
        HOST_DEVICES="none",
    )
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "HOST_DEVICES" in done.stderr
    assert "Traceback" not in done.stderr


def test_type_hints_are_declared():
    import pathlib

    import torch_mojo_backend

    assert (pathlib.Path(torch_mojo_backend.__file__).parent / "py.typed").exists()


def test_torchs_allocator_settings_apply(monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64,roundup_power2_divisions:4")
    done = run_python(
        """
        x = torch.empty(1300 << 10, dtype=torch.uint8, device="mojo")
        assert torch.mojo.memory_stats()["max_split_size"] == 64 << 20
        assert torch.mojo.memory_allocated() == 1536 << 10, torch.mojo.memory_allocated()
        large = torch.empty(100 << 20, dtype=torch.uint8, device="mojo")
        del large
        small = torch.empty(8 << 20, dtype=torch.uint8, device="mojo")  # no part of the large block
        assert torch.mojo.memory_reserved() == (112 + 20) << 20, torch.mojo.memory_reserved()
        """
    )
    assert not done.stderr


def test_an_allocator_setting_that_torch_refuses_is_its_error(monkeypatch):
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:5")
    done = run_python(
        """
        import torch, torch_mojo_backend
        try:
            torch_mojo_backend.register_mojo_devices()
        except ValueError as error:
            print(error)
        assert torch._C._get_privateuse1_backend_name() == "privateuseone" and not hasattr(torch, "mojo")
        """,
        register=False,
    )
    assert "max_split_size_mb" in done.stdout


def test_a_reader_that_leaves_early_sees_no_traceback():
    command = f"{sys.executable} -m torch_mojo_backend info | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr
