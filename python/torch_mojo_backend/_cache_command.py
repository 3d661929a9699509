"""``python -m torch_mojo_backend cache dir|clean|stats``: the cache of compiled device functions. Opens no device."""

from __future__ import annotations

import argparse
import json
from typing import Any

from torch_mojo_backend import _C
from torch_mojo_backend._units import with_unit


def add_cache_command(commands: Any) -> None:
    """Adds the command to the subparsers of the command line."""
    cache = commands.add_parser("cache", help="show, measure or empty the cache of compiled device functions")
    actions = cache.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("dir", help="print the folder; TORCH_MOJO_BACKEND_CACHE_DIR sets it")
    actions.add_parser("clean", help="remove every file of the cache, and its counts")
    stats = actions.add_parser(
        "stats", help="print its size, and hits and misses of all processes since the last clean"
    )
    stats.add_argument("--json", action="store_true", help="print one JSON object")


def run_cache_command(chosen: argparse.Namespace) -> None:
    """Prints what the chosen action asks for. RuntimeError if a setting does not parse or a file cannot be removed."""
    _C.check_settings()
    folder = _C.cache_directory()
    if chosen.action == "stats" and chosen.json:
        print(json.dumps({"directory": folder, **_C.cache_totals()}, indent=2))
    elif not folder:
        raise RuntimeError("nothing is kept on disk: TORCH_MOJO_BACKEND_CACHE_DIR is off, or there is no home folder")
    elif chosen.action == "dir":
        print(folder)
    elif chosen.action == "clean":
        size = _C.cache_totals()["bytes"]
        removed = _C.clear_cache()
        print(f"removed {_files(removed)}, {with_unit(size)}, from {folder}")
    else:
        print(_table(folder, _C.cache_totals()))


def cache_line() -> str:
    """What ``info`` says of the cache."""
    folder = _C.cache_directory()
    if not folder:
        return "off"
    now = _C.cache_statistics()
    return f"{folder}, {_files(now['files'])}, {with_unit(now['bytes'])} of {with_unit(now['size_limit'])}"


def _table(folder: str, totals: dict[str, int]) -> str:
    asked = totals["memory_hits"] + totals["disk_hits"] + totals["misses"]
    hits = totals["memory_hits"] + totals["disk_hits"]
    share = f"  ({100 * hits / asked:.1f} %)" if asked else ""
    rows = [
        ("directory", folder),
        ("files", str(totals["files"])),
        ("size", f"{with_unit(totals['bytes'])} of {with_unit(totals['size_limit'])}"),
        ("hits", f"{hits}{share}: {totals['memory_hits']} in memory, {totals['disk_hits']} on disk"),
        ("misses", f"{totals['misses']}, of which {totals['failures']} did not compile"),
        ("compiling", f"{totals['compile_milliseconds']} ms"),
        ("loading", f"{totals['load_milliseconds']} ms"),
        (
            "written",
            f"{_files(totals['written'])}, {totals['evicted']} evicted, {totals['rejected']} rejected as damaged",
        ),
    ]
    return "\n".join(f"{name:<11}{value}" for name, value in rows)


def _files(count: int) -> str:
    return f"{count} file{'s' if count != 1 else ''}"
