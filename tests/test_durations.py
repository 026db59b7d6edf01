"""The quick tier: chosen by measured time, and no slow test is forgotten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import durations

ROOT = Path(__file__).resolve().parent.parent
TESTS = """
import pytest

@pytest.fixture(scope="module")
def world():
    return 1

def test_quick(world):
    assert world

@pytest.mark.parametrize("case", ["a::b[c]", "d"])
def test_slow(world, case):
    assert world
"""


def run(folder: Path, *options: str, forgotten_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text(f"[pytest]\ntestpaths = .\npythonpath = {ROOT}\n")
    (folder / "conftest.py").write_text(
        "from pathlib import Path\nfrom tests import durations\n"
        f"durations.SLOW = Path({str(folder / 'slow.txt')!r})\n"
        f"durations.MEASURED = Path({str(folder / 'measured.json')!r})\n"
        f"durations.FORGOTTEN_S = {forgotten_s}\npytest_plugins = ('tests.durations',)\n"
    )
    (folder / "test_these.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:schemathesis", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("line", "told", "status"),
    [
        ("1.00 test_these.py::test_slow", "1 passed, 2 deselected", pytest.ExitCode.OK),
        ("1.00 test_these.py", "", pytest.ExitCode.NO_TESTS_COLLECTED),
    ],
)
def test_a_quick_run_leaves_out_what_is_listed(tmp_path: Path, line: str, told: str, status: int) -> None:
    (tmp_path / "slow.txt").write_text(f"# a comment\n{line}\n")
    done = run(tmp_path, "--quick")
    assert told in done.stdout
    assert done.returncode == status
    assert not (tmp_path / "measured.json").exists()
    assert "3 passed" in run(tmp_path).stdout


@pytest.mark.parametrize("options", [(), ("--numprocesses", "2")])
def test_a_whole_run_measures_every_test(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "slow.txt").write_text("")
    assert run(tmp_path, "test_these.py", *options).returncode == 0
    assert not (tmp_path / "measured.json").exists(), "not a whole run"
    assert run(tmp_path, *options).returncode == 0
    found = json.loads((tmp_path / "measured.json").read_text())
    assert found["cases"] == {"test_these.py::test_quick": 1, "test_these.py::test_slow": 2}
    assert found["seconds"].keys() == found["cases"].keys()
    assert found["shared"].keys() == {"test_these.py"}


def test_several_processes_begin_with_the_slowest_file(tmp_path: Path) -> None:
    (tmp_path / "slow.txt").write_text("0.50 test_these.py::test_slow\n2.00 test_z.py::test_last\n")
    (tmp_path / "test_z.py").write_text("def test_first(): ...\ndef test_last(): ...\n")
    done = run(tmp_path, "--numprocesses", "1", "-v")
    order = [line.split()[-1] for line in done.stdout.splitlines() if " PASSED " in line]
    assert [key.partition("[")[0] for key in order] == [
        "test_z.py::test_first",
        "test_z.py::test_last",
        "test_these.py::test_quick",
        "test_these.py::test_slow",
        "test_these.py::test_slow",
    ]


def test_a_slow_test_that_is_not_listed_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "slow.txt").write_text("1.00 test_these.py::test_slow\n")
    done = run(tmp_path, forgotten_s=0.0)
    assert done.returncode == 1
    assert "ERROR test_these.py::test_quick is slow" in done.stdout
    assert "test_slow is slow" not in done.stdout


def test_the_shortest_tests_are_quick_as_long_as_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "QUICK_S", 10.0)
    seconds = {"a.py::many": 4.0, "a.py::one": 1.0, "b.py::long": 7.0, "c.py::shares": 0.0}
    cases = {"a.py::many": 8, "a.py::one": 1, "b.py::long": 1, "c.py::shares": 2}
    slow, quick_s = durations.choose(seconds, cases, {"a.py": 0.9, "c.py": 5.0, "gone.py": 3.0})
    assert slow == {"c.py::shares": 2.5, "b.py::long": 7.0}
    assert quick_s == pytest.approx(5.9)


def test_every_line_of_the_list_can_be_read() -> None:
    assert durations.slow_tests()
    assert all(name.split("::")[0].endswith(".py") for name in durations.slow_tests())
