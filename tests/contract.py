"""The marker that names the rows of the contract that a test proves.

from contract import contract

@contract("S-07")
def test_query_is_false_while_the_last_task_runs(): ...
"""

import pathlib

import pytest

ROWS = pathlib.Path(__file__).resolve().parent / "contract_rows.txt"


def known_rows() -> set[str]:
    lines = (line for line in ROWS.read_text().splitlines() if line and not line.startswith("#"))
    return {line.split()[0] for line in lines}


def contract(*rows: str) -> pytest.MarkDecorator:
    """Marks a test, a class or (as `pytestmark`) a module as proof of these rows."""
    if unknown := set(rows) - known_rows():
        raise ValueError(f"no such row in {ROWS.name}: {', '.join(sorted(unknown))}")
    return pytest.mark.contract(*rows)
