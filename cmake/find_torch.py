"""Prints `FOLDER;VERSION` of the torch to build against, without importing it. Run by the Python that will import us.

Looked for, in this order: the folder TORCH_MOJO_BUILD_TORCH names; on sys.path; in the environment of this interpreter
where build isolation hides it from sys.path.
"""

import importlib.util
import os
import pathlib
import re
import sys
import sysconfig


def candidates():
    if named := os.environ.get("TORCH_MOJO_BUILD_TORCH"):
        yield pathlib.Path(named)
        return
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        yield pathlib.Path(folder)
    for key in ("platlib", "purelib"):
        yield pathlib.Path(sysconfig.get_paths()[key]) / "torch"


def main() -> int:
    for folder in candidates():
        version = folder / "version.py"
        if version.is_file() and (folder / "include" / "c10").is_dir():
            found = re.search(r"^__version__\s*=\s*'([^']+)'", version.read_text(), re.MULTILINE)
            if found:
                print(f"{folder.resolve()};{found.group(1)}")
                return 0
    print(
        f"no torch with headers is installed for {sys.executable}.\n"
        "Install it first (pip install torch==2.13.0), then build with `pip install --no-build-isolation .`,\n"
        "or name its folder in TORCH_MOJO_BUILD_TORCH.",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
