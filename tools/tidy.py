#!/usr/bin/env python3
"""Runs clang-tidy over the files of src/ that include no torch, each at most once for the same content.

A file that was clean leaves a stamp named by what the result depends on: clang-tidy's version, .clang-tidy, the file
and all headers of the project that it includes. So a check after a small change takes seconds.

    python tools/tidy.py [--jobs N] [--torch] [FILE...]
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STAMPS = ROOT / "build" / "tidy"
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)


def closure(path: pathlib.Path, seen: dict[pathlib.Path, bytes]) -> dict[pathlib.Path, bytes]:
    """The file and all project headers it includes, with their contents."""
    if path not in seen:
        seen[path] = path.read_bytes()
        for header in INCLUDE.findall(seen[path].decode(errors="replace")):
            for folder in (ROOT / "src", ROOT / "include", path.parent):
                if (folder / header).is_file():
                    closure((folder / header).resolve(), seen)
                    break
    return seen


def stamp(path: pathlib.Path, common: bytes) -> pathlib.Path:
    digest = hashlib.sha256(common)
    for name, content in sorted(closure(path, {}).items()):
        digest.update(str(name.relative_to(ROOT)).encode() + b"\0" + content + b"\0")
    return STAMPS / digest.hexdigest()


def without_gcc_only_flags(database: pathlib.Path) -> list[dict[str, str]]:
    """The compile commands of src/, without the launcher and the precompiled header, which clang cannot read."""
    entries = json.loads(database.read_text())
    for entry in entries:
        command = re.sub(r"^.*?(?=\S*(?:g\+\+|c\+\+|clang\+\+)\S* )", "", entry["command"])
        command = re.sub(r"-include \S*cmake_pch\.hxx|-Winvalid-pch|-fpch-preprocess|-Wno-tsan|-Werror", "", command)
        entry["command"] = command
    return [entry for entry in entries if pathlib.Path(entry["file"]).is_relative_to(ROOT / "src")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--torch", action="store_true", help="the files that include torch too (slow)")
    parser.add_argument("--build", type=pathlib.Path, help="the build folder with compile_commands.json")
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()

    program = shutil.which("clang-tidy")
    if not program:
        sys.exit("clang-tidy is not installed")
    build = arguments.build or configured()
    entries = without_gcc_only_flags(build / "compile_commands.json")
    chosen = {file.resolve() for file in arguments.files}
    files = []
    for entry in entries:
        file = pathlib.Path(entry["file"])
        torch = file.relative_to(ROOT / "src").parts[0] in ("torch_backend", "ops", "python")
        if file.is_file() and (file in chosen if chosen else arguments.torch or not torch):
            files.append(file)

    version = subprocess.run([program, "--version"], capture_output=True, check=True).stdout
    common = version + (ROOT / ".clang-tidy").read_bytes() + pathlib.Path(__file__).read_bytes()
    STAMPS.mkdir(parents=True, exist_ok=True)
    todo = [(file, stamp(file, common)) for file in sorted(set(files))]
    pending = [(file, mark) for file, mark in todo if not mark.exists()]

    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "compile_commands.json").write_text(json.dumps(entries))

        def check(item: tuple[pathlib.Path, pathlib.Path]) -> str:
            file, mark = item
            run = subprocess.run([program, "--quiet", "-p", folder, file], capture_output=True, text=True)
            if run.returncode == 0:
                mark.touch()
                return ""
            return run.stdout or run.stderr

        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            for (file, _), text in zip(pending, pool.map(check, pending), strict=True):
                if text:
                    failed += 1
                    print(f"{file.relative_to(ROOT)}:\n{text.strip()}", flush=True)
    print(f"clang-tidy: {len(todo)} files, {len(todo) - len(pending)} unchanged since they were clean, {failed} failed")
    return 1 if failed or not todo else 0


def configured() -> pathlib.Path:
    """A build folder to take the compile commands from; configures one without torch where there is none."""
    for name in ("dev", "asan"):
        if (ROOT / "build" / name / "compile_commands.json").is_file():
            return ROOT / "build" / name
    subprocess.run(["cmake", "--preset", "asan"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return ROOT / "build" / "asan"


if __name__ == "__main__":
    sys.exit(main())
