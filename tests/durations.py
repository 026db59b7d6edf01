"""What tests take, by measurement: `--quick` leaves out the slow ones, which slow.txt lists.

A whole run measures every test and writes build/durations.json. `make durations` makes slow.txt from it: the quick
tier keeps as many tests as fit in its time, the shortest first. A test that is not listed is quick. If it turns out to
use `FORGOTTEN_S` of processor time, the run fails, so that no slow test can be forgotten. Processor time, and much of
it, since a busy machine, which may take three times as long, must fail no test.

Tests are listed by file and name without their folder, so that they can move between rooms, and all cases of a
parametrised test are slow or quick together. The time of a module's fixtures is divided among its tests. Fixtures of
the whole session are not counted: any choice of tests needs them.
"""

from __future__ import annotations

import json
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Container, Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SLOW = Path(__file__).parent / "slow.txt"
MEASURED = Path(__file__).parents[1] / "build" / "durations.json"
QUICK_S = 20.0  # time of all tests of the quick tier together; starting and thousands of small tests take as long again
FORGOTTEN_S = 30.0
HEADER = """\
# Slow tests, and files with slow tests only, which `make quick` leaves out. In front: seconds that one case takes with
# its part of its module's fixtures. Written by `make durations` after a whole run (`make test`); do not edit by hand.
"""

_by_scope: Counter[str] = Counter()  # seconds that fixtures of the test at hand took to set up
_cpu_s: dict[str, float] = defaultdict(float)
_seconds: dict[str, float] = defaultdict(float)
_cases: Counter[str] = Counter()
_shared: dict[str, float] = defaultdict(float)


def key_of(nodeid: str) -> str:
    """Return a test's file and name, without its folder and without what it is parametrised with."""
    path, _, name = nodeid.partition("[")[0].partition("::")
    return f"{Path(path).name}::{name}"


@cache
def slow_tests() -> dict[str, float]:
    """Return the seconds of the tests that are listed as slow, and of the files of which all tests are."""
    lines = (line.split(maxsplit=1) for line in SLOW.read_text(encoding="utf-8").splitlines() if line[0] != "#")
    return {name: float(seconds) for seconds, name in lines}


def by_file(slow: dict[str, float]) -> dict[str, float]:
    """Return the seconds of the slowest test in each file.

    >>> by_file({"test_a.py::test_x": 1.0, "test_a.py::test_y": 2.5, "test_b.py": 0.5})
    {'test_a.py': 2.5, 'test_b.py': 0.5}
    """
    found: dict[str, float] = {}
    for key, seconds in slow.items():
        file = key.partition("::")[0]
        found[file] = max(found.get(file, 0.0), seconds)
    return found


def _is_listed(key: str, slow: Container[str]) -> bool:
    return key in slow or key.partition("::")[0] in slow


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--quick`."""
    parser.addoption("--quick", action="store_true", help="leave out the tests that tests/slow.txt lists")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import files with slow tests only."""
    return True if config.getoption("quick") and collection_path.name in slow_tests() else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the slow tests out of a quick run; begin a run in several processes with the files of the slowest."""
    slow = slow_tests()
    if not config.getoption("quick"):
        if hasattr(config, "workerinput"):  # a long test at the end would leave the other processes idle
            slowest = by_file(slow)
            items.sort(key=lambda item: -slowest.get(item.path.name, 0.0))
        return
    left_out = [item for item in items if _is_listed(key_of(item.nodeid), slow)]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
    """Measure fixtures that other tests share."""
    began = time.perf_counter()
    try:
        return (yield)
    finally:
        _by_scope[fixturedef.scope] += time.perf_counter() - began


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Measure the processor time of a test and of the processes that it has waited for."""
    began = _processor_s()
    try:
        return (yield)
    finally:
        _by_scope["cpu"] += _processor_s() - began


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write on a report what has been measured, so that it comes along from pytest's processes."""
    report = yield
    report.shared_s = _by_scope["class"] + _by_scope["module"] + _by_scope["package"]
    report.session_s = _by_scope["session"]
    report.cpu_s = _by_scope["cpu"]
    _by_scope.clear()
    return report


def pytest_runtest_logreport(report: Any) -> None:
    """Add up what all processes have measured."""
    if not hasattr(report, "cpu_s"):  # of a process that crashed
        return
    key = key_of(report.nodeid)
    file = key.partition("::")[0]
    if report.when == "teardown":
        _shared[file] += report.duration
        return
    _shared[file] += report.shared_s
    _seconds[key] += report.duration - report.shared_s - report.session_s
    if report.when == "call":
        _cases[key] += 1
        _cpu_s[key] = max(_cpu_s[key], report.cpu_s)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what a whole run has measured, and let none pass in which a slow test is not listed."""
    config = session.config
    if hasattr(config, "workerinput"):
        return
    narrowed = any(config.getoption(name, False) for name in ("quick", "keyword", "markexpr", "lf", "collectonly"))
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS and not narrowed:
        MEASURED.parent.mkdir(exist_ok=True)
        found = {"seconds": _seconds, "cases": _cases, "shared": _shared}
        MEASURED.write_text(json.dumps(found, indent=0), encoding="utf-8")
    if _forgotten() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the slow tests that are not listed."""
    for key, seconds in _forgotten().items():
        terminalreporter.write_line(
            f"ERROR {key} is slow ({seconds:.0f} s of processor time) and not listed. Run `make test durations`.",
            red=True,
        )


def _forgotten() -> dict[str, float]:
    long = {key: seconds for key, seconds in _cpu_s.items() if seconds > FORGOTTEN_S}
    slow = slow_tests() if long else {}
    return {key: seconds for key, seconds in long.items() if not _is_listed(key, slow)}


def _processor_s() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in used)


def choose(
    seconds: dict[str, float], cases: dict[str, int], shared: dict[str, float]
) -> tuple[dict[str, float], float]:
    """Divide tests into slow and quick ones.

    Args:
        seconds: Seconds of each test, all cases together, without what it shares with others.
        cases: Number of its cases.
        shared: Seconds of the fixtures that the tests of each file share, and of what they take to end.

    Returns:
        Seconds that a case of each slow test takes, and the seconds of all quick ones together.
    """
    in_file: Counter[str] = Counter()
    for key, number in cases.items():
        in_file[key.partition("::")[0]] += number
    share = {file: total / in_file[file] for file, total in shared.items() if in_file[file]}
    per_case = {key: seconds[key] / number + share.get(key.partition("::")[0], 0.0) for key, number in cases.items()}
    total = 0.0
    slow = {}
    for key in sorted(per_case, key=per_case.__getitem__):
        total += per_case[key] * cases[key]
        if total > QUICK_S:
            slow[key] = per_case[key]
    return slow, sum(per_case[key] * cases[key] for key in per_case.keys() - slow.keys())


def main() -> None:
    """Write slow.txt from the newest whole run."""
    found = json.loads(MEASURED.read_text(encoding="utf-8"))
    cases = found["cases"]
    slow, quick_s = choose(found["seconds"], cases, found["shared"])
    of_quick = {key.partition("::")[0] for key in cases.keys() - slow.keys()}
    lines: dict[str, float] = {}
    for key in sorted(slow):
        file = key.partition("::")[0]
        line = key if file in of_quick else file
        lines[line] = max(lines.get(line, 0.0), slow[key])
    SLOW.write_text(HEADER + "".join(f"{lines[line]:.2f} {line}\n" for line in lines), encoding="utf-8")
    left_out = sum(cases[key] for key in slow)
    print(f"{left_out} of {sum(cases.values())} tests are slow. The others took {quick_s:.0f} s.")


if __name__ == "__main__":
    main()
