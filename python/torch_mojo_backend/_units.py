"""Numbers for people."""

from __future__ import annotations


def with_unit(size: int) -> str:
    """A number of bytes: 512 B, 2.0 KiB, 1.5 GiB."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
