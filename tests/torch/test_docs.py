"""The docs are true as far as a test can tell: their code runs, their links resolve, and what they name exists.

A fenced block runs if its first line is

    ```python              in one process with the other such blocks, each in a namespace of its own
    ```python with A=1     in a process that has these environment variables, with the other such blocks
    ```python no-run WHY   not at all

after PRELUDE, with the host driver and two devices. Functions named `test_*` are then called. A block may leave no
failure of queued work and no current stream behind. `python tests/torch/test_docs.py FILE:LINE ...` runs the blocks
that begin there and prints a JSON line for each.
"""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import traceback
import types
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

PRELUDE = """
import torch
import torch_mojo_backend
from torch_mojo_backend.testing import Gate, assert_no_host_wait, schedule

torch_mojo_backend.register_mojo_devices()
device = torch.accelerator.current_accelerator()
"""
TIMEOUT = 240  # seconds, of all blocks of one process together


@dataclass(frozen=True)
class Block:
    page: pathlib.Path
    line: int  # of the opening fence, from 1
    language: str
    words: tuple[str, ...]  # what follows the language
    code: str = field(repr=False)

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page}:{self.line}"

    @property
    def skipped(self) -> bool:
        return self.words[:1] == ("no-run",)

    @property
    def settings(self) -> tuple[str, ...]:
        return self.words[1:] if self.words[:1] == ("with",) else ()


def blocks_of(page: pathlib.Path) -> list[Block]:
    blocks, opened, words, code = [], 0, [], []
    for number, text in enumerate(page.read_text().splitlines(), 1):
        fence = text.lstrip().startswith("```")
        if not fence:
            code.append(text)
        elif opened:
            language, *rest = words or [""]
            blocks.append(Block(page, opened, language, tuple(rest), "\n".join(code) + "\n"))
            opened = 0
        else:
            opened, words, code = number, text.strip().removeprefix("```").split(), []
    assert not opened, f"{page}:{opened}: the fence is not closed"
    return blocks


def text_without_blocks(page: pathlib.Path) -> str:
    return re.sub(r"^[ \t]*```.*?^[ \t]*```[ \t]*$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


# --- In the process that runs blocks ----------------------------------------------------------------------------------


def run_block(block: Block) -> None:
    import torch

    module = types.ModuleType("block")
    exec(PRELUDE, module.__dict__)
    # Padded, so that a traceback shows the line of the page.
    exec(compile("\n" * block.line + block.code, str(block.page), "exec"), module.__dict__)
    for name, value in list(vars(module).items()):
        if name.startswith("test_") and callable(value):
            value()
    current = torch.accelerator.current_device_index()
    assert current == 0, f"device {current} is still current"
    for i in range(torch.accelerator.device_count()):
        torch.accelerator.synchronize(i)  # raises a failure that the block left behind
        stream = torch.accelerator.current_stream(i)
        assert stream.stream_id == 0, f"{stream} is still current"


def settle() -> None:
    """No block finds what another that failed has left behind."""
    import torch
    from helpers import drain

    for i in reversed(range(torch.accelerator.device_count())):
        torch.accelerator.set_stream(torch.mojo.default_stream(i))  # makes its device current too
    drain()


def run_blocks(names: list[str]) -> None:
    pages = {(ROOT / name.rsplit(":", 1)[0]).resolve(): None for name in names}
    for block in [block for page in pages for block in blocks_of(page) if block.name in names]:
        error = None
        began = time.perf_counter()
        try:
            run_block(block)
        except BaseException:
            error = traceback.format_exc()
            settle()
        found = {"block": block.name, "error": error, "seconds": round(time.perf_counter() - began, 3)}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    import faulthandler

    faulthandler.dump_traceback_later(TIMEOUT - 10, exit=True)
    run_blocks(sys.argv[1:])
    sys.exit(0)


# --- In pytest --------------------------------------------------------------------------------------------------------

import pytest  # noqa: E402

PYTHON_BLOCKS = [block for page in PAGES for block in blocks_of(page) if block.language == "python"]
RUN = [block for block in PYTHON_BLOCKS if not block.skipped]


def run(blocks: list[Block], settings: tuple[str, ...] = ()) -> tuple[dict[str, str | None], str]:
    """The error, or None, of each block that was run, and what ended the process early."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_MOJO_BACKEND_")}
    env |= {"TORCH_MOJO_BACKEND_DRIVER": "host", "TORCH_MOJO_BACKEND_HOST_DEVICES": "2"}
    env |= dict(setting.split("=", 1) for setting in settings)
    command = [sys.executable, __file__, *(block.name for block in blocks)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT)
    found = [json.loads(text) for text in done.stdout.splitlines() if text.startswith('{"block"')]
    end = f"exit status {done.returncode}\n{done.stderr}" if done.returncode else ""
    return {entry["block"]: entry["error"] for entry in found}, end


@functools.cache
def results_of_all(settings: tuple[str, ...]) -> tuple[dict[str, str | None], str]:
    return run([block for block in RUN if block.settings == settings], settings)


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.name)
def test_code_block_runs(block: Block) -> None:
    errors, end = results_of_all(block.settings)
    assert block.name in errors, f"{block.name} was not reached or did not end\n{end}"
    assert errors[block.name] is None, f"{block.name}\n{errors[block.name]}"
    assert not end, f"the process of {block.name} ended badly after its blocks\n{end}"


def test_a_block_that_fails_is_noticed(tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.md"
    codes = [
        "assert device.type == 'cpu'",
        "def test_it():\n    assert False",
        "torch.ones(3, device=device)[torch.tensor([9], device=device)]",
        "torch.Stream(device).__enter__()",
        "1",
    ]
    page.write_text("".join(f"```python\n{code}\n```\n" for code in codes))
    errors, end = run(blocks_of(page))
    *failed, passed = errors.values()
    assert passed is None and not end
    kinds = ["AssertionError", "AssertionError", "IndexError", "AssertionError"]
    assert len(failed) == len(kinds)
    for kind, error in zip(kinds, failed, strict=True):
        assert kind in (error or ""), error


def test_fences_are_ones_that_this_test_knows() -> None:
    for block in PYTHON_BLOCKS:
        if block.words:
            assert block.skipped or block.settings, f"{block.name}: unknown words {block.words}"
        if block.skipped:
            assert block.words[1:], f"{block.name}: no-run needs a reason"
        assert all("=" in word for word in block.settings), f"{block.name}: not settings: {block.settings}"
        compile(block.code, block.name, "exec")


def anchor_of(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", ""))
    return kept.replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: pathlib.Path) -> None:
    prose = re.sub(r"`[^`\n]+`", "", text_without_blocks(page))  # a call such as f[T](n) is no link
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name}: no such file: {target}"
        assert linked.is_relative_to(ROOT), f"{page.name}: outside the project: {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", text_without_blocks(linked), flags=re.MULTILINE)
            assert anchor in map(anchor_of, headings), f"{page.name}: no such heading: {target}"


def inline_code(page: pathlib.Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text_without_blocks(page))


def tracked_files() -> list[str]:
    """The files of the project. Without git (a source package): all but builds."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return listed.stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        folders = ("src", "include", "python", "tests", "tools", "docs", "examples", "benchmarks", "cmake")
        found = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
        return [str(path.relative_to(ROOT)) for path in [*found, *ROOT.glob("*.*")]]


_FOLDERS = r"(?:src|include|python|tests|tools|docs|examples|benchmarks|cmake)"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: pathlib.Path) -> None:
    names = {path.rsplit("/", 1)[-1] for path in tracked_files()}
    missing = []
    for text in inline_code(page):
        if re.fullmatch(_FOLDERS + r"/[\w./*-]*", text):
            if not list(ROOT.glob(text.rstrip("/"))):
                missing.append(text)
        elif re.fullmatch(r"[\w-]+\.(cpp|h|py|md|cmake|txt|sh)", text) and text not in names:
            missing.append(text)
    assert not missing, f"{page.name} names files that do not exist: {missing}"


@functools.cache
def cpp_source() -> str:
    files = [path for folder in ("src", "include") for path in (ROOT / folder).rglob("*.*")]
    files = [path for path in files if path.suffix in (".h", ".cpp")]
    return "\n".join(path.read_text() for path in files)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_cpp_names_exist(page: pathlib.Path) -> None:
    unknown = []
    for text in inline_code(page):
        match = re.fullmatch(r"((?:\w+::)+)(\w+)(\(.*\))?", text)
        if not match or match[1].startswith(("at::", "c10::", "torch::", "std::")):
            continue
        parts = [*match[1].rstrip(":").split("::"), match[2]]
        unknown += [text for part in parts if not re.search(rf"\b{part}\b", cpp_source())]
    assert not unknown, f"{page.name} names what no C++ file has: {unknown}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_names_exist(page: pathlib.Path) -> None:
    import torch
    import torch_mojo_backend.testing

    unknown = []
    for text in inline_code(page):
        for dotted in re.findall(r"\b(?:torch\.(?:mojo|accelerator)|torch_mojo_backend)(?:\.\w+)+", text):
            found = torch if dotted.startswith("torch.") else torch_mojo_backend
            for part in dotted.split(".")[1:]:
                found = getattr(found, part, None)
            if found is None and dotted != "torch.accelerator.Graph":  # newer than the oldest torch
                unknown.append(dotted)
    assert not unknown, f"{page.name} names what does not exist: {unknown}"


@functools.cache
def settings_page() -> str:
    command = [sys.executable, "-m", "torch_mojo_backend", "docs-settings"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_environment_page_is_up_to_date() -> None:
    assert (ROOT / "docs/environment.md").read_text() == settings_page(), (
        "run: python -m torch_mojo_backend docs-settings > docs/environment.md"
    )


def test_ops_page_is_up_to_date() -> None:
    import torch

    text = (ROOT / "docs/ops.md").read_text()
    version = re.search(r"with torch (\d+\.\d+)", text)
    assert version, "the page names no torch"
    if version[1] != ".".join(torch.__version__.split(".")[:2]):
        pytest.skip(f"the page is that of torch {version[1]}")
    command = [sys.executable, "-m", "torch_mojo_backend", "docs-ops"]
    page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert text == page, "run: python -m torch_mojo_backend docs-ops > docs/ops.md"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_that_are_named_exist(page: pathlib.Path) -> None:
    known = set(re.findall(r"\| `(TORCH_MOJO_BACKEND_\w+)`", settings_page()))
    named = set(re.findall(r"\bTORCH_MOJO_BACKEND_\w*[A-Z]", page.read_text()))
    assert named <= known, f"{page.name} names settings that do not exist: {sorted(named - known)}"
