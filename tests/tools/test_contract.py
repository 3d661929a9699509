"""tools/contract.py finds the rows that tests name, and those that none does."""

import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "contract.py"

PYTHON_TESTS = """
import pytest
from contract import contract

@contract("S-01")
@pytest.mark.parametrize("n", [1, 2])
def test_new(n): ...

class TestRepr:
    pytestmark = pytest.mark.contract("S-02")
    def test_it(self): ...
"""

CPP_TESTS = """
// E-01
TEST(Event, Records) {}

// C-01: is of the next test.
TEST_F(Copies,
       Work) {
}
int not_a_test;  // x
"""


@pytest.fixture
def tree(tmp_path):
    for folder in ("unit", "torch"):
        (tmp_path / "tests" / folder).mkdir(parents=True)
    (tmp_path / "tests" / "contract_rows.txt").write_text(
        "# a comment\nS-01 done streams\nS-02 open repr\nE-01 done events\nM-01 open memory\nC-01 done copies\n"
    )
    (tmp_path / "tests" / "torch" / "test_streams.py").write_text(PYTHON_TESTS)
    (tmp_path / "tests" / "unit" / "event_test.cpp").write_text(CPP_TESTS)
    return tmp_path


def run(root, *arguments):
    return subprocess.run([sys.executable, TOOL, "--root", root, *arguments], capture_output=True, text=True)


def test_lists_rows_without_a_test(tree):
    result = run(tree)
    assert result.returncode == 0
    assert result.stdout.splitlines() == ["M-01 open memory", "4 of 5 rows are named by a test"]


def test_check_passes_while_only_open_rows_lack_a_test(tree):
    assert run(tree, "--check").returncode == 0


def test_check_fails_for_a_done_row_without_a_test(tree):
    rows = tree / "tests" / "contract_rows.txt"
    rows.write_text(rows.read_text().replace("M-01 open", "M-01 done"))
    result = run(tree, "--check")
    assert result.returncode == 1
    assert "M-01 done memory" in result.stdout


def test_check_fails_for_a_tag_that_is_no_row(tree):
    (tree / "tests" / "unit" / "x_test.cpp").write_text("TEST(X, Y) {  // S-99\n}\n")
    result = run(tree, "--check")
    assert result.returncode == 1
    assert "X.Y names S-99, which is no row" in result.stdout


def test_results_count_only_what_passed(tree):
    ctest = tree / "ctest.xml"
    ctest.write_text(
        '<testsuite><testcase name="unit/Event.Records" classname="unit/Event.Records" status="run"/>'
        '<testcase name="unit/Copies.Work" classname="unit/Copies.Work" status="fail"><failure message=""/></testcase>'
        "</testsuite>"
    )
    pytest_results = tree / "pytest.xml"
    pytest_results.write_text(
        '<testsuites><testsuite><testcase classname="tests.torch.test_streams" name="test_new[1]"/>'
        '<testcase classname="tests.torch.test_streams.TestRepr" name="test_it"><skipped/></testcase>'
        "</testsuite></testsuites>"
    )
    lines = run(tree, "--results", ctest, pytest_results).stdout.splitlines()
    assert lines[-1] == "2 of 5 rows are named by a passing test"
    assert [line.split()[0] for line in lines[:-1]] == ["S-02", "M-01", "C-01"]
    assert run(tree, "--check", "--results", ctest, pytest_results).returncode == 1
