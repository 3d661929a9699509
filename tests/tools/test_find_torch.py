"""The build takes the torch of the environment that will import us, and says clearly when it cannot."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from contract import contract

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "cmake" / "find_torch.py"


def fake_torch(folder, version):
    major, minor = version.split(".")[:2]
    (folder / "include" / "c10").mkdir(parents=True)
    (folder / "include" / "torch" / "headeronly").mkdir(parents=True)
    (folder / "version.py").write_text(f"__version__ = '{version}'\ncuda = None\n")
    (folder / "include" / "torch" / "headeronly" / "version.h").write_text(
        f"#define TORCH_VERSION_MAJOR {major}\n#define TORCH_VERSION_MINOR {minor}\n"
    )
    return folder


def find(**variables):
    env = {name: value for name, value in os.environ.items() if name != "TORCH_MOJO_BUILD_TORCH"}
    return subprocess.run([sys.executable, TOOL], env=env | variables, capture_output=True, text=True)


def test_finds_the_torch_that_this_interpreter_imports():
    import torch

    folder, version = find().stdout.strip().split(";")
    assert pathlib.Path(folder) == pathlib.Path(torch.__file__).resolve().parent
    assert version == torch.__version__


def test_finds_it_where_build_isolation_hides_the_packages(tmp_path):
    # what pip does for an isolated build: same interpreter, its site-packages taken off sys.path
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, sysconfig\nhidden = set(sysconfig.get_paths().values())\n"
        "sys.path[:] = [p for p in sys.path if p not in hidden or 'site-packages' not in p]\n"
    )
    assert (
        "torch"
        not in subprocess.run(
            [sys.executable, "-c", "import importlib.util; print(importlib.util.find_spec('torch'))"],
            env=dict(os.environ, PYTHONPATH=str(tmp_path)),
            capture_output=True,
            text=True,
        ).stdout
    )
    assert find(PYTHONPATH=str(tmp_path)).stdout == find().stdout


def test_takes_the_folder_that_is_named(tmp_path):
    torch = fake_torch(tmp_path / "torch", "2.12.1+cpu")
    assert find(TORCH_MOJO_BUILD_TORCH=str(torch)).stdout.strip() == f"{torch};2.12.1+cpu"


def test_says_what_to_do_where_there_is_none(tmp_path):
    result = find(TORCH_MOJO_BUILD_TORCH=str(tmp_path))
    assert result.returncode == 1
    assert "no torch with headers" in result.stderr and "--no-build-isolation" in result.stderr


@contract("R-07")
@pytest.mark.skipif(not shutil.which("cmake") or not shutil.which("ninja"), reason="needs cmake and ninja")
def test_a_torch_that_is_too_old_is_refused(tmp_path):
    torch = fake_torch(tmp_path / "torch", "2.10.0")
    command = ["cmake", "-G", "Ninja", "-S", ROOT, "-B", tmp_path / "build", f"-DMOJO_PYTHON={sys.executable}"]
    result = subprocess.run(
        command, env=dict(os.environ, TORCH_MOJO_BUILD_TORCH=str(torch)), capture_output=True, text=True
    )
    assert result.returncode != 0
    assert "is too old: torch 2.11 or later is needed" in " ".join(result.stderr.split())
