"""A C++ program is built with the package that is installed beside the Python files, without torch or Python."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

CONSUMER = pathlib.Path(__file__).with_name("consumer")


def run(*command: str | os.PathLike[str]) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=250)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.contract("D-09")
@pytest.mark.parametrize("compiler", ["c++", "clang++-14"])
def test_a_program_uses_the_package_that_cmake_dir_names(compiler: str, tmp_path: pathlib.Path) -> None:
    cmake = shutil.which("cmake")
    if cmake is None or shutil.which(compiler) is None:
        pytest.skip(f"no cmake, or no {compiler}")
    command = [sys.executable, "-m", "torch_mojo_backend", "cmake-dir"]
    folder = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    assert (pathlib.Path(folder) / "mojoConfig.cmake").is_file()
    flags = (f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_NO_SYSTEM_FROM_IMPORTED=ON", f"-Dmojo_DIR={folder}")
    run(cmake, "-S", CONSUMER, "-B", tmp_path, *flags)
    run(cmake, "--build", tmp_path)
    assert "all right on" in run(tmp_path / "consumer")
    needed = [line for line in run("readelf", "-d", tmp_path / "consumer").splitlines() if "(NEEDED)" in line]
    assert any("libmojo_runtime" in line for line in needed)
    assert not [line for line in needed if "torch" in line or "python" in line]
