"""Measure all servers in turns; finished turns are kept in a file, so that an interrupted run continues."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.serving import wrk
from benchmarks.serving.model import LENET, SLOW, prepare
from benchmarks.serving.processors import processor_seconds
from benchmarks.serving.servers import CANDOR, PEER_SERVERS, ROOT, Running, Server, candor, running

CONNECTIONS = (1, 16, 64)
EAGER = 256
DEADLINE_S = 1.0
OVERLOAD = 3.0
WORKERS = (1, 2, 4, 8)
PARTS = ("closed", "batches", "in-process", "log", "overload", "eager", "workers")

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
        keep: File of finished turns.
    """

    rounds: int
    seconds: float
    wrk: str
    parts: Sequence[str]
    keep: Path | None


def key(*names: object) -> str:
    return "|".join(str(name) for name in names)


def run(pythons: Mapping[str, Path], options: Options) -> tuple[Turns, dict[str, str]]:
    """Measure until each key has enough turns; return them, and why servers were skipped."""
    turns: Turns = {}
    if options.keep is not None and options.keep.exists():
        turns = json.loads(options.keep.read_text(encoding="utf-8"))
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        bench = _Bench(Path(name), pythons, options, turns, failed)
        for number in range(1, options.rounds + 1):
            for part in options.parts:
                print(f"turn {number}: {part}", file=sys.stderr)
                bench.take(part, number)
    return turns, failed


class _Bench:
    def __init__(
        self,
        scratch: Path,
        pythons: Mapping[str, Path],
        options: Options,
        turns: Turns,
        failed: dict[str, str],
    ) -> None:
        self._scratch = scratch
        self._pythons = pythons
        self._options = options
        self._turns = turns
        self._failed = failed
        self._prepared = {name: prepare(name, scratch) for name in (LENET, SLOW)}

    def take(self, part: str, number: int) -> None:
        """Run a turn of every server in a part of the benchmark."""
        {
            "closed": self._closed,
            "batches": self._batches,
            "in-process": self._in_process,
            "log": self._log,
            "overload": self._overload,
            "eager": self._eager,
            "workers": self._workers,
        }[part](number)

    def _closed(self, number: int) -> None:
        """Start, measure and stop one server after the other: some use CPU time even without requests."""
        servers = {CANDOR: candor(LENET), **{name: PEER_SERVERS[name] for name in self._pythons}}
        for name, server in servers.items():
            if name in self._failed:
                continue
            with ExitStack() as stack:
                one = self._up(stack, name, server)
                for payload in () if one is None else one.payloads:
                    for connections in CONNECTIONS:
                        self._ask(number, ("closed", name, payload, connections), one, payload, connections)

    def _batches(self, number: int) -> None:
        with self._ours() as one:
            for payload in ("npy", "V2 binary"):
                self._ask(number, ("batches", payload), one, payload, connections=4, rows=32)

    def _in_process(self, number: int) -> None:
        if self._has("in-process", number):
            return
        command = [sys.executable, "-m", "benchmarks.serving.in_process"]
        self._keep("in-process", self._module([*command, str(self._scratch), str(self._options.seconds)]))

    def _log(self, number: int) -> None:
        """Measure a log of capacity 1, which drops nearly everything: the cost of a request without logging."""
        for variant, capacity in (("on", "100000"), ("off", "1")):
            with self._ours(CANDOR_LOG_CAPACITY=capacity) as one:
                self._ask(number, ("log", variant), one, "npy", connections=64)

    def _overload(self, number: int) -> None:
        if self._has("overload|open", number):
            return
        with self._ours(SLOW, CANDOR_DEADLINE_S=str(DEADLINE_S)) as one:
            peak = self._ask(number, ("overload", "peak"), one, "npy", connections=64)
            request = one.payloads["npy"].write(self._prepared[SLOW].inputs[:1])
            body = self._scratch / "overload"
            body.write_bytes(request.body)
            rate, seconds = OVERLOAD * peak["per_s"], 3 * self._options.seconds
            command = [sys.executable, "-m", "benchmarks.serving.open_loop", str(one.port), request.path, str(body)]
            headers = [f"{name}={value}" for name, value in request.headers.items()]
            self._keep("overload|open", self._module([*command, f"{rate:.1f}", f"{seconds:.1f}", *headers]))

    def _eager(self, number: int) -> None:
        """Measure clients that repeat refused requests at once."""
        for rows in (64, 1024):
            with self._ours(CANDOR_MAX_QUEUED_ROWS=str(rows)) as one:
                self._ask(number, ("eager", rows, "peak"), one, "npy", connections=64)
                self._ask(number, ("eager", rows, EAGER), one, "npy", connections=EAGER)

    def _workers(self, number: int) -> None:
        """Measure several worker processes, and the processor time of a request, which carries to more cores."""
        for workers in WORKERS:
            with self._ours(CANDOR_WORKERS=str(workers)) as one:
                for payload in ("npy", "V2 JSON"):
                    for connections in CONNECTIONS:
                        self._ask(number, ("workers", workers, payload, connections), one, payload, connections)

    @contextmanager
    def _ours(self, model: str = LENET, **environment: str) -> Iterator[Running]:
        python = Path(sys.executable)
        with running(CANDOR, candor(model), python, self._prepared[model], self._scratch, **environment) as one:
            one.check("npy", self._prepared[model])
            yield one

    def _up(self, stack: ExitStack, name: str, server: Server) -> Running | None:
        python = self._pythons.get(name, Path(sys.executable))
        prepared = self._prepared[LENET]
        try:
            one = stack.enter_context(running(name, server, python, prepared, self._scratch))
            for payload in one.payloads:
                one.check(payload, prepared)
        except (RuntimeError, ValueError, OSError) as error:
            if name == CANDOR:
                raise
            self._failed[name] = str(error)
            print(f"{name} is skipped: {error}", file=sys.stderr)
            return None
        return one

    def _ask(
        self, number: int, names: tuple[object, ...], one: Running, payload: str, connections: int, rows: int = 1
    ) -> dict[str, Any]:
        where = key(*names)
        if self._has(where, number):
            return self._turns[where][number - 1]
        request = one.payloads[payload].write(self._inputs(rows))
        options = self._options
        for seconds in (options.seconds / 5, options.seconds):  # the first to warm up
            before_s = processor_seconds(one.pid)
            measured = wrk.measure(
                options.wrk, one.port, request, connections=connections, seconds=seconds, scratch=self._scratch
            )
        answers = measured.per_s * round(max(1, options.seconds))
        used_s = processor_seconds(one.pid) - before_s
        found = {**asdict(measured), "processor_us": 1e6 * used_s / answers if answers else None}
        self._keep(where, found)
        return found

    def _inputs(self, rows: int) -> Any:
        return self._prepared[LENET].inputs[:rows]

    def _module(self, command: list[str]) -> dict[str, Any]:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode != 0:
            raise RuntimeError(done.stderr[-1000:])
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def _has(self, where: str, number: int) -> bool:
        return len(self._turns.get(where, [])) >= number

    def _keep(self, where: str, result: dict[str, Any]) -> None:
        self._turns.setdefault(where, []).append(result)
        if self._options.keep is not None:
            self._options.keep.write_text(json.dumps(self._turns, indent=1), encoding="utf-8")
