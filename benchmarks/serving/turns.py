"""Measure all servers in turns; finished turns are kept in a file, so that an interrupted run continues."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.serving import wrk
from benchmarks.serving.model import LENET, SLOW, prepare
from benchmarks.serving.modes import MODES
from benchmarks.serving.servers import CANDOR, ROOT, Running, Server, candor, running

CONNECTIONS = (1, 16, 64)
EAGER = 256
DEADLINE_S = 1.0
OVERLOAD = 3.0
WORKERS = (1, 2, 4, 8)
PARTS = ("closed", "batches", "in-process", "log", "overload", "eager", "workers")
_WARM_UP: Final = 0.2  # of a turn, before it
_START_S: Final = 15.0  # start, check and stop of a server, for the estimate

Turns = dict[str, list[dict[str, Any]]]
"""Results by key, one per turn."""


@dataclass(frozen=True)
class Options:
    """Options of a run.

    Attributes:
        rounds: Turns per server.
        seconds: Length of a turn.
        wrk: Path of wrk.
        parts: Parts among `PARTS`.
        workers: Numbers of workers in the part of that name.
        threads: Threads per run of the model.
        keep: File of finished turns.
    """

    rounds: int
    seconds: float
    wrk: str
    parts: Sequence[str]
    workers: Sequence[int]
    threads: int
    keep: Path | None


@dataclass(frozen=True)
class Load:
    """A closed loop of clients; `where` is the key of its results."""

    where: str
    payload: str
    connections: int
    rows: int = 1


@dataclass(frozen=True)
class Visit:
    """A start of a server, and what is measured before it is stopped.

    Attributes:
        name: Name of the server.
        server: The server.
        loads: Closed loops.
        model: Model that it serves.
        environment: Further environment variables.
        workers: Number of its workers.
        overload: Whether an open loop follows, at `OVERLOAD` times the rate of the only closed one.
    """

    name: str
    server: Server
    loads: tuple[Load, ...]
    model: str = LENET
    environment: Mapping[str, str] = field(default_factory=dict)
    workers: int = 1
    overload: bool = False

    @property
    def title(self) -> str:
        """Name with the number of workers."""
        return self.name if self.workers == 1 else f"{self.name}, {self.workers} workers"

    @property
    def keys(self) -> list[str]:
        """Keys of all its results."""
        return [load.where for load in self.loads] + ["overload|open"] * self.overload


def key(*names: object) -> str:
    return "|".join(str(name) for name in names)


def visits(part: str, peers: Sequence[str], workers: Sequence[int]) -> Iterator[Visit]:
    """Yield the starts of servers in one turn of a part; "in-process" has none.

    Args:
        part: One of `PARTS`.
        peers: Names among `MODES`.
        workers: Numbers of workers in the part of that name.
    """

    def ours(*loads: Load, model: str = LENET, number: int = 1, overload: bool = False, **environment: str) -> Visit:
        return Visit(CANDOR, candor(model, number), loads, model, environment, number, overload)

    def closed(server: Server, *names: object, payloads: Sequence[str] = ()) -> tuple[Load, ...]:
        return tuple(
            Load(key(*names, payload, connections), payload, connections)
            for payload in payloads or server.payloads
            for connections in CONNECTIONS
        )

    # One server after the other: some use processor time even without requests.
    if part == "closed":
        yield ours(*closed(candor(LENET), part, CANDOR))
        for name in peers:
            server = MODES[name].server(1)
            yield Visit(name, server, closed(server, part, name))
    elif part == "workers":
        for number in workers:
            yield ours(*closed(candor(LENET), part, CANDOR, number, payloads=("npy", "V2 JSON")), number=number)
            for name in peers:
                if MODES[name].scales:
                    server = MODES[name].server(number)
                    yield Visit(name, server, closed(server, part, name, number), workers=number)
    elif part == "batches":
        yield ours(*(Load(key(part, payload), payload, 4, rows=32) for payload in ("npy", "V2 binary")))
    elif part == "log":  # a log of capacity 1 drops nearly everything: the cost of a request without logging
        for variant, capacity in (("on", "100000"), ("off", "1")):
            yield ours(Load(key(part, variant), "npy", 64), CANDOR_LOG_CAPACITY=capacity)
    elif part == "overload":
        peak = Load(key(part, "peak"), "npy", 64)
        yield ours(peak, model=SLOW, overload=True, CANDOR_DEADLINE_S=str(DEADLINE_S))
    elif part == "eager":  # clients that repeat refused requests at once
        for rows in (64, 1024):
            loads = (Load(key(part, rows, "peak"), "npy", 64), Load(key(part, rows, EAGER), "npy", EAGER))
            yield ours(*loads, CANDOR_MAX_QUEUED_ROWS=str(rows))


class Bench:
    """All parts of the benchmark, from a file of finished turns on.

    Args:
        pythons: Interpreter of each peer's environment, by name among `MODES`.
        options: Options of the run.

    Attributes:
        turns: Results so far.
        failed: Why peers were left out, by title; they are tried again in the next run.
    """

    def __init__(self, pythons: Mapping[str, Path], options: Options) -> None:
        self.turns: Turns = {}
        self.failed: dict[str, str] = {}
        self._pythons = pythons
        self._options = options
        if options.keep is not None and options.keep.exists():
            self.turns = json.loads(options.keep.read_text(encoding="utf-8"))

    def estimate_s(self) -> float:
        """Return about how long the rest of the run takes, in seconds."""
        seconds = 0.0
        for number in range(1, self._options.rounds + 1):
            for part in self._options.parts:
                if part == "in-process" and not self._has(part, number):
                    seconds += 3 * self._options.seconds
                for visit in visits(part, [*self._pythons], self._options.workers):
                    if missing := [where for where in visit.keys if not self._has(where, number)]:
                        seconds += _START_S + len(missing) * (1 + _WARM_UP) * self._options.seconds
                        seconds += 3 * self._options.seconds * visit.overload
        return seconds

    def run(self) -> None:
        """Measure until each key has enough turns."""
        with tempfile.TemporaryDirectory() as name:
            self._scratch = Path(name)
            self._prepared = {model: prepare(model, self._scratch) for model in (LENET, SLOW)}
            for number in range(1, self._options.rounds + 1):
                for part in self._options.parts:
                    if part == "in-process":
                        self._in_process(number)
                    for visit in visits(part, [*self._pythons], self._options.workers):
                        if visit.title not in self.failed and not all(self._has(where, number) for where in visit.keys):
                            print(f"{time.strftime('%H:%M:%S')} turn {number}, {part}: {visit.title}", file=sys.stderr)
                            self._visit(visit, number)

    def _visit(self, visit: Visit, number: int) -> None:
        prepared = self._prepared[visit.model]
        python = self._pythons.get(visit.name, Path(sys.executable))
        threads = str(self._options.threads)
        environment = {**visit.environment, "THREADS": threads, "CANDOR_THREADS": threads}
        try:
            with running(visit.name, visit.server, python, prepared, self._scratch, **environment) as one:
                for payload in {load.payload: None for load in visit.loads}:
                    one.check(payload, prepared)
                for load in visit.loads:
                    if not self._has(load.where, number):
                        self._keep(load.where, self._measure(one, load))
                if visit.overload and not self._has("overload|open", number):
                    self._keep("overload|open", self._overload(one, self.turns[visit.loads[0].where][-1]["per_s"]))
        except (RuntimeError, ValueError, OSError, subprocess.SubprocessError) as error:
            if visit.name == CANDOR:
                raise
            self.failed[visit.title] = str(error)
            print(f"{visit.title} is left out: {error}", file=sys.stderr)

    def _measure(self, one: Running, load: Load) -> dict[str, Any]:
        request = one.payloads[load.payload].write(self._prepared[LENET].inputs[: load.rows])
        options = self._options
        for seconds in (_WARM_UP * options.seconds, options.seconds):
            before_s = one.processor_seconds()
            measured = wrk.measure(
                options.wrk, one.port, request, connections=load.connections, seconds=seconds, scratch=self._scratch
            )
        answers = measured.per_s * round(max(1, options.seconds))
        used_s = one.processor_seconds() - before_s
        return {**asdict(measured), "processor_us": 1e6 * used_s / answers if answers else None}

    def _overload(self, one: Running, peak_per_s: float) -> dict[str, Any]:
        request = one.payloads["npy"].write(self._prepared[SLOW].inputs[:1])
        body = self._scratch / "overload"
        body.write_bytes(request.body)
        rate, seconds = OVERLOAD * peak_per_s, 3 * self._options.seconds
        command = [sys.executable, "-m", "benchmarks.serving.open_loop", str(one.port), request.path, str(body)]
        headers = [f"{name}={value}" for name, value in request.headers.items()]
        return _module([*command, f"{rate:.1f}", f"{seconds:.1f}", *headers])

    def _in_process(self, number: int) -> None:
        if not self._has("in-process", number):
            command = [sys.executable, "-m", "benchmarks.serving.in_process"]
            self._keep(
                "in-process",
                _module([*command, str(self._scratch), str(self._options.seconds), str(self._options.threads)]),
            )

    def _has(self, where: str, number: int) -> bool:
        return len(self.turns.get(where, [])) >= number

    def _keep(self, where: str, result: dict[str, Any]) -> None:
        self.turns.setdefault(where, []).append(result)
        if self._options.keep is not None:
            part = self._options.keep.with_suffix(".part")
            part.write_text(json.dumps(self.turns, indent=1), encoding="utf-8")
            part.replace(self._options.keep)


def _module(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-1000:])
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
