"""The command line: ``python -m torch_mojo_backend``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

import torch

from torch_mojo_backend import _build_info
from torch_mojo_backend._cache_command import add_cache_command, cache_line, run_cache_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m torch_mojo_backend", description="The PyTorch backend `mojo`.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    info = commands.add_parser("info", help="print driver, devices, versions and every setting with its source")
    info.add_argument("--json", action="store_true", help="print one JSON object")
    commands.add_parser("docs-settings", help="print the page docs/environment.md")
    commands.add_parser("docs-ops", help="print the page docs/ops.md")
    commands.add_parser("cmake-dir", help="print the folder of the CMake package `mojo`, for -Dmojo_DIR=")
    add_cache_command(commands)
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "docs-settings":
            print(settings_page(), end="")
        elif chosen.command == "docs-ops":
            from torch_mojo_backend._ops_page import ops_page

            print(ops_page(), end="")
        elif chosen.command == "cmake-dir":
            print(cmake_dir())
        elif chosen.command == "cache":
            run_cache_command(chosen)
        else:
            found = collect()
            print(json.dumps(found, indent=2) if chosen.json else as_text(found))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has enough (`info | head`)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (RuntimeError, ValueError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


def cmake_dir() -> str:
    """The folder of mojoConfig.cmake: beside the library, also where that is a link into a build tree."""
    library = os.path.realpath(os.path.join(os.path.dirname(__file__), "lib", "libmojo_runtime.so"))
    folder = os.path.join(os.path.dirname(library), "cmake", "mojo")
    if not os.path.exists(os.path.join(folder, "mojoConfig.cmake")):
        raise RuntimeError(f"this installation has no CMake package: there is no {folder}/mojoConfig.cmake")
    return folder


def collect() -> dict[str, Any]:
    """What ``info`` prints. Opens every device, to ask it for its name."""
    from torch_mojo_backend import _C

    _C.check_settings()
    devices = []
    for i in range(_C.device_count()):
        found = _C.device_properties(i)
        free, total = _C.memory_info(i)
        least, greatest = _C.priority_range(i)
        devices.append(
            {
                "index": i,
                "name": found["name"],
                "total_memory": total,
                "free_memory": free,
                "workers": found["multiprocessor_count"],
                "priority_range": [least, greatest],
            }
        )
    return {
        "version": _build_info.version,
        "commit": _build_info.git_commit,
        "built_for_torch": _build_info.torch_version,
        "compiler": _build_info.compiler,
        "build_type": _build_info.build_type,
        "assertions": _build_info.assertions,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "driver": _C.driver_name(),
        "devices": devices,
        "cache": {"directory": _C.cache_directory(), **_C.cache_statistics()},
        "settings": _C.settings(),
        "warnings": _C.unknown_settings(),
    }


def as_text(found: dict[str, Any]) -> str:
    """What ``info`` prints for a person."""
    checked = ", checked" if found["assertions"] else ""
    lines = [
        f"torch_mojo_backend {found['version']} ({found['commit']})",
        f"  built       for torch {found['built_for_torch']}, {found['compiler']}, {found['build_type']}{checked}",
        f"  running     torch {found['torch']}, Python {found['python']}",
        f"  driver      {found['driver']}, {len(found['devices'])} device{'s' if len(found['devices']) != 1 else ''}",
    ]
    for device in found["devices"]:
        lines.append(
            f"  mojo:{device['index']:<7}{device['name']}, {device['total_memory'] / 2**30:.1f} GiB, "
            f"{device['workers']} workers"
        )
    lines.append(f"  cache       {cache_line()}")
    lines.append("settings")
    width = max(len(row["name"]) for row in found["settings"])
    for row in found["settings"]:
        lines.append(f"  {row['name']:{width}}  {row['value']}  ({row['source']})")
        lines.append(f"      {row['description']} Accepts {row['accepted']}.")
    lines += [f"warning: {text}" for text in found["warnings"]]
    return "\n".join(lines)


_SETTINGS_PAGE_HEAD = """\
# Settings

<!-- Generated by `python -m torch_mojo_backend docs-settings` from the table in src/base/env.cpp. -->

Each setting is an environment variable, read once: when the driver is chosen, which is at the first question for
devices. A value that does not parse is one error that names the setting, the value and what is accepted, and then
nothing has been changed. A name that begins with `TORCH_MOJO_BACKEND_` and is no setting is warned about, with the
nearest name.
`python -m torch_mojo_backend info` prints each value in force and where it comes from.

| setting | default | accepts | what it does |
|---|---|---|---|
"""


def settings_page() -> str:
    """The page of all settings, in Markdown, from the table that the library reads them by."""
    from torch_mojo_backend import _C

    # The table tells what is in force: without the variables, that is the defaults.
    for name in [name for name in os.environ if name.startswith("TORCH_MOJO_BACKEND_")]:
        del os.environ[name]
    page = _SETTINGS_PAGE_HEAD
    for row in _C.settings():
        cells = (f"`{row['name']}`", row["value"], row["accepted"], row["description"])
        page += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    return page
