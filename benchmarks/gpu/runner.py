"""Run the parts one after the other; an interrupted run continues, since complete parts are not run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.part import COMPLETE, FAILED, LEFT_OUT, PARTS, Outcome, path_of
from benchmarks.serving.servers import ROOT

_GRACE_S = 30.0
_LOOK_S = 0.2

Report = Callable[[str, str], None]
"""Called with a part and what it does now."""


def run(bench: Bench, names: Sequence[str], *, fresh: bool, working: Report) -> dict[str, Outcome]:
    """Run parts and return the outcomes of all parts that have one.

    Args:
        bench: Folder and host.
        names: Parts to run, unless they are complete.
        fresh: Run complete parts, too.
        working: Hears what the part at hand does.
    """
    budget_s = bench.host.sizes.budget_s
    end = time.monotonic() + budget_s
    bench.folder.mkdir(parents=True, exist_ok=True)
    outcomes = {}
    for name, part in PARTS.items():
        kept = complete(bench, name)
        if name in names and (fresh or kept is None):
            limit_s = min(budget_s / 2, end - time.monotonic())
            if part.needs_gpu and bench.host.gpu is None:
                kept = _outcome(LEFT_OUT, bench, 0.0, str(bench.host.reason))
            else:
                kept = _in_process(name, bench, part.environment, limit_s, working)
        if kept is not None:
            outcomes[name] = kept
    return outcomes


def complete(bench: Bench, name: str) -> Outcome | None:
    """Return the outcome of a part that is complete on this very host, with these packages and this source."""
    try:
        outcome: Outcome = json.loads(path_of(bench.folder, name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return outcome if outcome["status"] == COMPLETE and outcome["host"] == asdict(bench.host) else None


def _in_process(name: str, bench: Bench, environment: Mapping[str, str], limit_s: float, working: Report) -> Outcome:
    """Run a part in a process of its own. Whatever it does, its outcome is returned."""
    began = time.monotonic()
    path, log = path_of(bench.folder, name), bench.folder / f"{name}.log"
    path.unlink(missing_ok=True)
    working(name, "")
    if limit_s <= 0:
        return _outcome(FAILED, bench, 0.0, "no time is left; the same command continues here")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu.part", name, str(bench.folder)],
            env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then stops the part
        )
    try:
        while process.poll() is None and time.monotonic() < began + limit_s:
            working(name, _last_line(log))
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
        late = process.poll() is None
    finally:
        _stop(process)
    seconds = time.monotonic() - began
    if late:
        return _outcome(FAILED, bench, seconds, f"stopped after {limit_s:.0f} s; see {log.name}")
    if process.returncode != 0:
        return _outcome(FAILED, bench, seconds, f"{_last_line(log)} (exit code {process.returncode}; see {log.name})")
    outcome: Outcome = json.loads(path.read_text(encoding="utf-8"))
    return outcome


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a part with all that it started: kindly first, since a service of its own is in another session."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
            return


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _outcome(status: str, bench: Bench, seconds: float, reason: str) -> Outcome:
    return {"status": status, "reason": reason, "seconds": seconds, "host": asdict(bench.host)}
