#!/usr/bin/env python3
"""Checks that each line of src/ and include/ is in its room.

Includes follow the edges of cmake/layers.txt; a vendor's names stay in that vendor's driver, the environment in
src/base/env*, torch in torch_backend, ops and python, Python in python; only src/drivers/builtin.cpp names drivers;
each header opens by saying what it is, how it orders, which threads may use it and how it fails.

    python tools/check_layers.py [ROOT]
"""

import dataclasses
import pathlib
import re
import sys

VENDOR_NAMES = {  # a name of the vendor's library: the folder of src/ that may spell it
    re.compile(r"\bcu[A-Z]\w*"): "drivers/cuda",
    re.compile(r"\bCU[A-Z_]+[a-z]\w*"): "drivers/cuda",
    re.compile(r"\bnvrtc[A-Z]\w*"): "drivers/cuda",
    re.compile(r"\bhip[A-Z]\w*"): "drivers/hip",
}
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\b|\b(?:un)?setenv\b|\bputenv\b|\benviron\b")
TORCH_NAMES = re.compile(r"\b(?:at|c10|torch)::")
TORCH_HEADERS = re.compile(r"^(?:ATen|c10|torch|caffe2)/")
PYTHON_HEADERS = re.compile(r"^(?:Python\.h|pybind11/|torch/csrc/(?:Generator|Stream|Event|Exceptions|utils/pybind)\b)")
TORCH_LAYERS = ("torch_backend", "ops", "python")
OPENING_WORDS = ("What it is", "Ordering", "Threads", "Errors")
OPENING_LINES = 24


@dataclasses.dataclass(frozen=True)
class Layers:
    """The table of cmake/layers.txt."""

    uses: dict[str, list[str]]
    leaf: frozenset[str]

    @classmethod
    def read(cls, path: pathlib.Path) -> "Layers":
        uses: dict[str, list[str]] = {}
        leaf: frozenset[str] = frozenset()
        for line in path.read_text().splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            name, _, rest = line.partition(":")
            if name.strip() == "leaf":
                leaf = frozenset(rest.split())
            else:
                uses[name.strip()] = rest.split()
        return cls(uses, leaf)

    def of(self, path: str) -> str | None:
        """The layer of a file, given by its path from src/."""
        folder = path.rpartition("/")[0]
        if folder in ("", "drivers"):
            return folder or "."
        while folder and folder not in self.uses:
            folder = folder.rpartition("/")[0]
        return folder if folder and folder != "drivers" else None

    def cycles(self) -> list[str]:
        found: list[str] = []
        done: set[str] = set()

        def visit(layer: str, path: tuple[str, ...]) -> None:
            if layer in path:
                found.append(" -> ".join((*path[path.index(layer) :], layer)))
            elif layer not in done:
                for used in self.uses.get(layer, []):
                    visit(self.of(used) or "" if used.endswith(".h") else used, (*path, layer))
                done.add(layer)

        for layer in self.uses:
            visit(layer, ())
        return found


def without_comments_and_strings(text: str) -> str:
    """The code with each comment and literal blanked, newlines kept."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match.group())

    pattern = (
        r'R"([^\s()\\]{0,16})\(.*?\)\1"|//(?:\\\n|[^\n])*|/\*.*?\*/'
        r'|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\''
    )
    return re.sub(pattern, blank, text, flags=re.DOTALL)


class Checker:
    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.src = root / "src"
        self.include = root / "include"
        self.layers = Layers.read(root / "cmake" / "layers.txt")
        self.problems: list[str] = []

    def report(self, path: pathlib.Path, line: int, text: str) -> None:
        self.problems.append(f"{path.relative_to(self.root)}:{line}: {text}")

    def run(self) -> list[str]:
        self.problems += [f"cmake/layers.txt:1: the layers form a cycle: {cycle}" for cycle in self.layers.cycles()]
        for path in sorted(self.include.rglob("*.h")):
            self.public_header(path)
        for path in sorted([*self.src.rglob("*.h"), *self.src.rglob("*.cpp")]):
            if self.src / "kernels" in path.parents:
                self.device_text(path)
            else:
                self.source(path)
        return self.problems

    def includes(self, text: str) -> list[tuple[int, str, str]]:
        found = re.finditer(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text, re.MULTILINE)
        return [(text.count("\n", 0, m.start()) + 1, m.group(1), m.group(2)) for m in found]

    def names(self, path: pathlib.Path, code: str, pattern: re.Pattern[str], why: str) -> None:
        for match in pattern.finditer(code):
            self.report(path, code.count("\n", 0, match.start()) + 1, f"`{match.group()}` {why}")

    def opening(self, path: pathlib.Path, text: str, code: str) -> None:
        if not re.search("[;{]|#[ ]*define", code):  # it only includes others
            return
        head = "\n".join(line for line in text.splitlines()[:OPENING_LINES] if line.startswith("//"))
        if missing := [word for word in OPENING_WORDS if not re.search(rf"\b{word}\b[\w, ]*:", head, re.IGNORECASE)]:
            self.report(path, 1, f"the header does not open with: {', '.join(missing)}")

    def public_header(self, path: pathlib.Path) -> None:
        text = path.read_text()
        code = without_comments_and_strings(text)
        self.opening(path, text, code)
        own = path.relative_to(self.include).as_posix()
        for line, _, header in self.includes(text):
            if header.startswith("mojo/"):
                if not (self.include / header).is_file():
                    self.report(path, line, f"no such header: {header}")
                elif own in self.layers.leaf and header not in self.layers.leaf:
                    self.report(path, line, f"a leaf header includes {header}, which is none")
            elif "/" in header and not header.startswith("sys/"):
                self.report(path, line, f"a public header includes {header}: only mojo/ and the standard library")
        self.names(path, code, TORCH_NAMES, "in the public headers, which know no torch")
        self.names(path, code, ENVIRONMENT, "outside src/base/env*")
        for pattern in VENDOR_NAMES:
            self.names(path, code, pattern, "in the public headers, which know no vendor")

    def device_text(self, path: pathlib.Path) -> None:
        """What runs on the device: data to us. It includes only what is beside it, or handed over by the driver."""
        text = path.read_text()
        self.opening(path, text, without_comments_and_strings(text))
        for line, bracket, header in self.includes(text):
            beside = (self.src / "kernels" / "include" / header).is_file()
            if bracket == "<" or not (beside or header == "mojo/kernel/host_abi.h"):
                self.report(path, line, f"device code includes {header}: only the dialect's own headers")

    def source(self, path: pathlib.Path) -> None:
        where = path.relative_to(self.src).as_posix()
        layer = self.layers.of(where)
        if layer is None:
            self.report(path, 1, "is in no layer of cmake/layers.txt")
            return
        text = path.read_text()
        code = without_comments_and_strings(text)
        if path.suffix == ".h":
            self.opening(path, text, code)
        for line, _, header in self.includes(text):
            self.one_include(path, where, layer, line, header)
        if not where.startswith("base/env"):
            self.names(path, code, ENVIRONMENT, "outside src/base/env*: settings are read in one place")
        if layer not in TORCH_LAYERS:
            self.names(path, code, TORCH_NAMES, f"outside {', '.join('src/' + layer for layer in TORCH_LAYERS)}")
        for pattern, home in VENDOR_NAMES.items():
            if layer != home:
                self.names(path, code, pattern, f"outside src/{home}")

    def one_include(self, path: pathlib.Path, where: str, layer: str, line: int, header: str) -> None:
        if TORCH_HEADERS.match(header) and layer not in TORCH_LAYERS:
            self.report(path, line, f"{header} outside {', '.join('src/' + layer for layer in TORCH_LAYERS)}")
        if PYTHON_HEADERS.match(header) and layer != "python":
            self.report(path, line, f"{header} outside src/python")
        uses = self.layers.uses[layer]
        if header.startswith("mojo/"):
            if "public" not in uses and header not in self.layers.leaf:
                self.report(path, line, f"{layer} includes {header}, which is not one of the leaf headers")
            return
        if (self.src / header).is_file():
            target = header
        elif (path.parent / header).is_file():
            target = (path.parent / header).resolve().relative_to(self.src.resolve()).as_posix()
        else:
            return  # the standard library, the system, torch
        used = self.layers.of(target)
        if used == layer or target in uses or used in uses:
            in_drivers = used is not None and used.startswith("drivers/") and used != layer
            if in_drivers and where != "drivers/builtin.cpp":
                self.report(path, line, f"{header}: only src/drivers/builtin.cpp names drivers")
            return
        self.report(path, line, f"{layer} includes {header} of {used}; it may use: {' '.join(uses) or 'nothing'}")


def main(arguments: list[str]) -> int:
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    problems = Checker(root).run()
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
