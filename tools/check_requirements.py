"""Prints the requirements that this interpreter's environment does not satisfy; says nothing when all are there.

    python tools/check_requirements.py FILE-OR-REQUIREMENT...

Reads only what is installed, never the network, so that a second `make` works offline.
"""

import importlib
import pathlib
import sys
from importlib import metadata
from typing import Any


def parser() -> Any:
    """The module `packaging.requirements`; a new environment has pip alone, and pip has its own copy."""
    try:
        return importlib.import_module("packaging.requirements")
    except ImportError:
        return importlib.import_module("pip._vendor.packaging.requirements")


def lines_of(argument: str) -> list[str]:
    path = pathlib.Path(argument)
    if path.suffix != ".txt":
        return [argument]
    lines = (line.split("#")[0].strip() for line in path.read_text().splitlines())
    return [line for line in lines if line]


def satisfied(text: str) -> bool:
    requirements = parser()
    try:
        requirement = requirements.Requirement(text)
    except requirements.InvalidRequirement:
        # A wheel's path or address: whatever is installed under the name is taken to be it.
        name = pathlib.PurePosixPath(text).name.split("-")[0]
        return any(True for _ in metadata.distributions(name=name))
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return False
    return bool(requirement.specifier.contains(version, prereleases=True))


def main(arguments: list[str]) -> int:
    missing = [line for argument in arguments for line in lines_of(argument) if not satisfied(line)]
    print("\n".join(missing), end="\n" if missing else "")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
