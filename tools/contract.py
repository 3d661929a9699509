#!/usr/bin/env python3
"""Lists the rows of the contract (tests/contract_rows.txt) that no test names.

A Python test names rows with `@contract("S-07", ...)` (also on a class, or as `pytestmark`), a C++ test with a comment
tag `// S-07` in the comment above it, in its body or on its line.

    python tools/contract.py                         rows that no test names
    python tools/contract.py --tests                 every row with the tests that name it
    python tools/contract.py --results A.xml B.xml   count only tests that passed in these JUnit files
    python tools/contract.py --check                 fail where a row marked `done` has no test, or a tag is no row
"""

import argparse
import ast
import dataclasses
import pathlib
import re
import sys
import xml.etree.ElementTree
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
ID = re.compile(r"\b[ROSEMCADG]-\d\d\b")
TAG = re.compile(r"//.*")
GTEST = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Row:
    id: str
    state: str
    text: str


@dataclasses.dataclass(frozen=True)
class Claim:
    """One test says that it proves one row. `names`: what its name ends with in a JUnit file."""

    row: str
    where: str
    names: tuple[str, str]


def read_rows(path: pathlib.Path) -> list[Row]:
    lines = (line for line in path.read_text().splitlines() if line and not line.startswith("#"))
    rows = [Row(*line.split(maxsplit=2)) for line in lines]
    if bad := [row.id for row in rows if row.state not in ("done", "open")]:
        sys.exit(f"{path}: the state of {', '.join(bad)} is neither done nor open")
    return rows


def named_by(decorators: list[ast.expr]) -> set[str]:
    """The rows in calls of `contract(...)` and `pytest.mark.contract(...)`."""
    found: set[str] = set()
    for decorator in decorators:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                if name == "contract":
                    found |= {str(a.value) for a in node.args if isinstance(a, ast.Constant)}
    return found


def python_claims(path: pathlib.Path, root: pathlib.Path) -> Iterator[Claim]:
    tree = ast.parse(path.read_text(), str(path))
    where = path.relative_to(root).as_posix()

    def visit(body: list[ast.stmt], inherited: set[str], inside: str) -> Iterator[Claim]:
        marks: list[ast.expr] = []
        for node in body:
            if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "pytestmark" for t in node.targets):
                marks.append(node.value)
        inherited = inherited | named_by(marks)
        for node in body:
            if isinstance(node, ast.ClassDef):
                yield from visit(node.body, inherited | named_by(node.decorator_list), node.name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
                suite = f"{path.stem}.{inside}" if inside else path.stem
                for row in inherited | named_by(node.decorator_list):
                    yield Claim(row, f"{where}:{node.lineno}: {node.name}", (suite, node.name))

    yield from visit(tree.body, set(), "")


def cpp_claims(path: pathlib.Path, root: pathlib.Path) -> Iterator[Claim]:
    lines = path.read_text().splitlines()
    where = path.relative_to(root).as_posix()
    starts = [(i, m) for i, line in enumerate(lines) if (m := GTEST.match(line) or split_macro(lines, i))]
    for position, (start, match) in enumerate(starts):
        above = start
        while above > 0 and lines[above - 1].lstrip().startswith("//"):
            above -= 1
        end = len(lines)
        if position + 1 < len(starts):
            end = starts[position + 1][0]
            while end > start + 1 and lines[end - 1].lstrip().startswith("//"):
                end -= 1
        rows = {row for line in lines[above:end] for tag in TAG.findall(line) for row in ID.findall(tag)}
        for row in rows:
            name = f"{match.group(1)}.{match.group(2)}"
            yield Claim(row, f"{where}:{start + 1}: {name}", (match.group(1), match.group(2)))


def split_macro(lines: list[str], i: int) -> re.Match[str] | None:
    """A TEST macro whose arguments go over two lines."""
    if i + 1 < len(lines) and re.match(r"(?:TYPED_)?TEST", lines[i]) and ")" not in lines[i]:
        return GTEST.match(lines[i] + " " + lines[i + 1].strip())
    return None


def claims(root: pathlib.Path) -> list[Claim]:
    found: list[Claim] = []
    tests = root / "tests"
    for path in sorted(tests.rglob("test_*.py")):
        found += python_claims(path, root)
    for path in sorted(tests.rglob("*.cpp")):
        found += cpp_claims(path, root)
    return found


def passed(files: list[pathlib.Path]) -> set[str]:
    """Names of the tests that passed: `suite.name`, without parameters."""
    names: set[str] = set()
    for file in files:
        for case in xml.etree.ElementTree.parse(file).getroot().iter("testcase"):
            if case.get("status") == "disabled" or any(
                case.find(t) is not None for t in ("failure", "error", "skipped")
            ):
                continue
            name = case.get("name", "").partition("[")[0]
            suite = case.get("classname", "")
            names |= {f"{suite}.{name}", name}
    return names


def counts(claim: Claim, names: set[str]) -> bool:
    suite, test = claim.names
    # GoogleTest: kind/Suite.Name, kind/Prefix/Suite.Name/0, kind/Suite/0.Name; pytest: folder.file.Class.name
    pattern = re.compile(rf"(?:^|[/.]){re.escape(suite)}(?:/[^.]*)?\.{re.escape(test)}(?:/.*)?(?:\s.*)?$")
    return any(pattern.search(name) for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", action="store_true", help="list every row with its tests")
    parser.add_argument("--check", action="store_true", help="fail where a row that is done has no test")
    parser.add_argument("--results", nargs="+", type=pathlib.Path, default=[], metavar="JUNIT")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, help=argparse.SUPPRESS)
    arguments = parser.parse_args()

    rows = read_rows(arguments.root / "tests" / "contract_rows.txt")
    found = claims(arguments.root)
    unknown = sorted({f"{c.where} names {c.row}, which is no row" for c in found if c.row not in {r.id for r in rows}})
    if arguments.results:
        names = passed(arguments.results)
        found = [claim for claim in found if counts(claim, names)]
    by_row: dict[str, list[str]] = {}
    for claim in found:
        by_row.setdefault(claim.row, []).append(claim.where)

    missing = [row for row in rows if row.id not in by_row]
    for row in rows:
        if arguments.tests:
            print(f"{row.id} {row.state:4s} {len(by_row.get(row.id, []))} tests")
            for where in sorted(by_row.get(row.id, [])):
                print(f"    {where}")
        elif row in missing and (not arguments.check or row.state == "done"):
            print(f"{row.id} {row.state:4s} {row.text}")
    if unknown:
        print("\n".join(unknown))
    verb = "passing test" if arguments.results else "test"
    print(f"{len(rows) - len(missing)} of {len(rows)} rows are named by a {verb}")
    if arguments.check:
        return 1 if unknown or any(row.state == "done" for row in missing) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
