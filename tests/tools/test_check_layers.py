"""tools/check_layers.py finds what it is there to find, and nothing in a tree that is right."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "check_layers.py"
spec = importlib.util.spec_from_file_location("check_layers", TOOL)
assert spec and spec.loader
check_layers = importlib.util.module_from_spec(spec)
sys.modules["check_layers"] = check_layers
spec.loader.exec_module(check_layers)

HEADER = "// What it is: a thing. Ordering: none. Threads: any. Errors: none.\n#pragma once\n"


@pytest.fixture
def tree(tmp_path):
    """A small tree that is right; a test adds what is wrong."""
    (tmp_path / "cmake").mkdir()
    (tmp_path / "cmake" / "layers.txt").write_text((ROOT / "cmake" / "layers.txt").read_text())
    for path in (
        "include/mojo/export.h",
        "include/mojo/status.h",
        "include/mojo/device_ptr.h",
        "include/mojo/host_task.h",
        "include/mojo/allocation_policy.h",
        "include/mojo/device_context.h",
        "src/base/env.h",
        "src/driver/driver.h",
        "src/driver/compiler.h",
        "src/ordering/clock.h",
        "src/memory/block_pool.h",
        "src/runtime/stream.h",
        "src/drivers/builtin.h",
        "src/drivers/host/device.h",
        "src/drivers/layers/checked.h",
        "src/torch_backend/guard.h",
        "src/ops/boxed.h",
    ):
        add(tmp_path, path, HEADER + "struct Thing {};\n")
    add(tmp_path, "src/base/env.cpp", '#include "base/env.h"\n#include <cstdlib>\nauto x = std::getenv("HOME");\n')
    add(tmp_path, "src/drivers/builtin.cpp", '#include "drivers/builtin.h"\n#include "drivers/host/device.h"\n')
    add(tmp_path, "src/library.cpp", '#include "drivers/builtin.h"\n#include "runtime/stream.h"\n')
    add(tmp_path, "src/ops/boxed.cpp", '#include "torch_backend/guard.h"\n#include <ATen/Tensor.h>\nat::Tensor t;\n')
    add(tmp_path, "src/memory/block_pool.cpp", '#include "ordering/clock.h"\n#include "mojo/status.h"\n')
    return tmp_path


def add(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def problems(root):
    return check_layers.Checker(root).run()


def test_a_tree_that_is_right_has_no_problems(tree):
    assert problems(tree) == []


def test_this_project_has_no_problems():
    assert problems(ROOT) == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("src/memory/a.cpp", '#include "runtime/stream.h"\n', "memory includes runtime/stream.h"),
        ("src/memory/a.cpp", '#include "driver/driver.h"\n', "memory includes driver/driver.h"),
        ("src/ordering/a.cpp", '#include "memory/block_pool.h"\n', "ordering includes memory/block_pool.h"),
        ("src/ordering/a.cpp", '#include "../memory/block_pool.h"\n', "ordering includes ../memory/block_pool.h"),
        ("src/base/a.cpp", '#include "driver/driver.h"\n', "base includes driver/driver.h"),
        ("src/jit/a.cpp", '#include "driver/driver.h"\n', "jit includes driver/driver.h"),
        ("src/runtime/a.cpp", '#include "drivers/host/device.h"\n', "runtime includes drivers/host/device.h"),
        ("src/runtime/a.cpp", '#include "drivers/builtin.h"\n', "runtime includes drivers/builtin.h"),
        ("src/drivers/host/a.cpp", '#include "drivers/layers/checked.h"\n', "drivers/host includes drivers/layers"),
        (
            "src/drivers/builtin.h",
            HEADER + 'struct A;\n#include "drivers/host/device.h"\n',
            "only src/drivers/builtin.cpp",
        ),
        ("src/library.cpp", '#include "drivers/host/device.h"\n', ". includes drivers/host/device.h"),
        ("src/torch_backend/a.cpp", '#include "ops/boxed.h"\n', "torch_backend includes ops/boxed.h"),
        ("src/torch_backend/a.cpp", '#include "runtime/stream.h"\n', "torch_backend includes runtime/stream.h"),
        ("src/ops/a.cpp", '#include "base/env.h"\n', "ops includes base/env.h"),
        ("src/drivers/host/a.cpp", '#include "mojo/device_context.h"\n', "not one of the leaf headers"),
        ("include/mojo/status.h", HEADER + 'struct A;\n#include "mojo/device_context.h"\n', "a leaf header includes"),
        (
            "include/mojo/a.h",
            HEADER + "struct A;\n#include <ATen/Tensor.h>\n",
            "a public header includes ATen/Tensor.h",
        ),
        ("src/runtime/a.cpp", "at::Tensor t;\n", "`at::`"),
        ("src/runtime/a.cpp", "#include <c10/core/Device.h>\n", "c10/core/Device.h outside"),
        ("src/ops/a.cpp", "#include <Python.h>\n", "Python.h outside src/python"),
        ("src/runtime/a.cpp", 'auto x = std::getenv("A");\n', "`getenv`"),
        ("src/runtime/a.cpp", "auto r = cuMemAlloc(&p, 1);\n", "`cuMemAlloc` outside src/drivers/cuda"),
        ("src/drivers/host/a.cpp", "hipStream_t s;\n", "`hipStream_t` outside src/drivers/hip"),
        ("src/jit/a.cpp", "nvrtcProgram p;\n", "`nvrtcProgram` outside src/drivers/cuda"),
        ("src/memory/a.h", "#pragma once\nstruct A {};\n", "does not open with: What it is, Ordering, Threads, Errors"),
        ("src/somewhere/a.cpp", "int x;\n", "is in no layer"),
    ],
)
def test_finds(tree, path, text, expected):
    add(tree, path, text)
    found = problems(tree)
    assert any(expected in problem and problem.startswith(path) for problem in found), found


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("src/runtime/a.cpp", "// cuMemAlloc, at::Tensor and getenv in a comment\n"),
        ("src/runtime/a.cpp", '/* hipStream_t\n */ const char* s = "cuMemAlloc failed: \\" getenv";\n'),
        ("src/runtime/a.cpp", "const char* s = R\"(at::Tensor)\"; int million = 1'000'000;\n"),
        ("src/drivers/cuda/a.cpp", "auto r = cuMemAlloc(&p, 1);\n"),
        ("src/jit/a.cpp", '#include "driver/compiler.h"\n'),
        ("src/ops/a.cpp", '#include "mojo/device_context.h"\n'),
        ("src/memory/a.cpp", '#include "block_pool.h"\n'),
        ("src/memory/a.h", "// What it is: a part. Ordering, threads, errors: see block_pool.h.\nstruct A {};\n"),
        ("include/mojo/all.h", '#pragma once\n#include "mojo/status.h"\n'),
    ],
)
def test_allows(tree, path, text):
    if "drivers/cuda" in path:
        with (tree / "cmake" / "layers.txt").open("a") as table:
            table.write("drivers/cuda : driver base\n")
    add(tree, path, text)
    assert problems(tree) == []


def test_finds_a_cycle_in_the_table(tree):
    with (tree / "cmake" / "layers.txt").open("a") as table:
        table.write("base : runtime\n")
    assert any("cycle" in problem for problem in problems(tree))


def test_says_where_and_fails(tree):
    add(tree, "src/memory/a.cpp", '\n\n#include "runtime/stream.h"\n')
    run = subprocess.run([sys.executable, TOOL, tree], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stdout.startswith("src/memory/a.cpp:3: ")
