"""`python -m torch_mojo_backend cache dir|clean|stats`, and the line of `info`, in a folder of the test's own."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

NAME = "0" * 64 + ".image"


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    made = tmp_path / "cache"
    made.mkdir(mode=0o700)
    (made / NAME).write_bytes(b"x" * 2048)
    (made / "statistics").write_text("memory_hits 5\ndisk_hits 2\nmisses 3\nfailures 1\ncompile_milliseconds 450\n")
    return made


def command(folder: pathlib.Path | str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TORCH_MOJO_BACKEND_CACHE_DIR": str(folder), "TORCH_MOJO_BACKEND_CACHE_SIZE": "3M"}
    call = [sys.executable, "-m", "torch_mojo_backend", *arguments]
    return subprocess.run(call, env=environment, capture_output=True, text=True, timeout=60)


def test_the_folder(folder):
    done = command(folder, "cache", "dir")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder}\n", "")


def test_what_it_holds_and_what_it_did(folder):
    done = command(folder, "cache", "stats")
    assert done.returncode == 0 and not done.stderr
    for part in (
        str(folder),
        "2.0 KiB of 3.0 MiB",
        "7  (70.0 %): 5 in memory, 2 on disk",
        "3, of which 1 did",
        "450 ms",
    ):
        assert part in done.stdout
    found = json.loads(command(folder, "cache", "stats", "--json").stdout)
    assert found["directory"] == str(folder) and found["files"] == 1 and found["bytes"] == 2048
    assert (found["memory_hits"], found["disk_hits"], found["misses"], found["size_limit"]) == (5, 2, 3, 3 << 20)


def test_cleaning_leaves_what_is_not_the_caches(folder):
    (folder / "notes.txt").write_text("mine")
    done = command(folder, "cache", "clean")
    assert (done.returncode, done.stdout) == (0, f"removed 1 file, 2.0 KiB, from {folder}\n")
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert json.loads(command(folder, "cache", "stats", "--json").stdout)["misses"] == 0


def test_a_folder_that_is_not_there_yet(tmp_path):
    assert "0 files" in command(tmp_path / "none", "cache", "clean").stdout
    assert command(tmp_path / "none", "cache", "stats").returncode == 0
    assert not (tmp_path / "none").exists()


def test_a_cache_that_is_off_is_said_so():
    for action in ("dir", "clean", "stats"):
        done = command("off", "cache", action)
        assert done.returncode == 1 and done.stderr.startswith("error: ") and "CACHE_DIR" in done.stderr
    assert "cache       off" in command("off", "info").stdout


def test_bad_words(folder):
    for words in (["cache"], ["cache", "frobnicate"], ["cache", "dir", "--json"]):
        done = command(folder, *words)
        assert done.returncode == 2 and "usage:" in done.stderr
    done = command("relative/path", "cache", "clean")
    assert done.returncode == 1 and "TORCH_MOJO_BACKEND_CACHE_DIR" in done.stderr and "Traceback" not in done.stderr


def test_info_shows_the_cache(folder):
    assert f"cache       {folder}, 1 file, 2.0 KiB of 3.0 MiB" in command(folder, "info").stdout
    assert json.loads(command(folder, "info", "--json").stdout)["cache"]["files"] == 1
