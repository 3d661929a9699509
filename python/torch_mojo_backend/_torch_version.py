"""The check that the torch at hand is of the minor version that this binary was built for."""

from __future__ import annotations

import re

import torch

from torch_mojo_backend import _build_info


def major_minor(version: str) -> tuple[int, int] | None:
    """``(2, 13)`` of ``"2.13.0+cpu"``; None where the text begins with no version."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else None


def require_matching_torch() -> None:
    """Raises ImportError unless torch's major and minor version are those that the native library was built for."""
    found = str(torch.__version__)
    wanted = _build_info.torch_major_minor
    if major_minor(found) != tuple(wanted):
        raise ImportError(
            f"torch_mojo_backend {_build_info.version} was built for torch {wanted[0]}.{wanted[1]} "
            f"(against {_build_info.torch_version}), but torch {found} is installed: install torch "
            f"{wanted[0]}.{wanted[1]} or rebuild torch_mojo_backend for torch {found}"
        )
