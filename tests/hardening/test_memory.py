"""A refit that gets ran out of memory: its job fails and says so, the service lives, and the next job runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until

LITTLE_BYTES = 48 << 20
GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group whose processes have ran out of memory for a refit."""
    if not (GROUPS / "cgroup.controllers").is_file():
        pytest.skip("this machine has no control groups of version 2")
    made = GROUPS / f"candor-test-{os.getpid()}"
    try:
        made.mkdir()
        (made / "memory.max").write_text(str(LITTLE_BYTES))
        with suppress(OSError):
            (made / "memory.swap.max").write_text("0")
    except OSError as error:
        with suppress(OSError):
            made.rmdir()
        pytest.skip(f"this machine does not let us make a control group with little memory: {error}")
    yield made
    until(lambda: not (made / "cgroup.procs").read_text())
    made.rmdir()


@pytest.fixture
def children_run(in_place_of_python: Callable[[str], None]) -> Callable[[str], None]:
    """Let a line of shell run in each child process before it becomes a refit."""

    def run(line: str) -> None:
        in_place_of_python(f'#!/bin/sh\n{line}\nexec {sys.executable} "$@"\n')

    return run


def fails_and_goes_on(service: Any, digits: Any) -> dict[str, Any]:
    """Refit, and return the problem that the job ended with."""
    response = service.recalibrate(mode="propose")
    problem: dict[str, Any] = response.json()
    assert (response.status_code, problem["detail"]) == (500, "The recalibration's process ended without a result.")
    (job,) = service.http.get("/v1/jobs").json()["items"]
    assert job["state"] == "failed"
    assert len(service.predict(digits.images[:3])) == 3
    assert service.http.get("/readyz").status_code == 200
    return problem


@pytest.fixture
def taught(start: Any, digits: Any) -> Any:
    service = start()
    service.teach(digits.dimmed[:200], digits.labels[:200])
    return service


def test_one_that_the_kernel_kills(taught: Any, digits: Any, group: Path, children_run: Callable[[str], None]) -> None:
    children_run(f"echo $$ > {group}/cgroup.procs || exit 99")
    problem = fails_and_goes_on(taught, digits)
    assert "-9" in problem["found"]
    assert "ran out of memory" in problem["remedy"]
    children_run("true")
    assert taught.recalibrate(mode="propose").status_code == 200


def test_one_that_asks_in_vain(taught: Any, digits: Any, children_run: Callable[[str], None]) -> None:
    children_run("ulimit -v 60000")
    fails_and_goes_on(taught, digits)
    children_run("true")
    assert taught.recalibrate(mode="propose").status_code == 200
