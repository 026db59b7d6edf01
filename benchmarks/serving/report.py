"""The results and goals in Markdown."""

from __future__ import annotations

import math
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path

from benchmarks.results_file import marked
from benchmarks.serving.modes import MODES
from benchmarks.serving.servers import CANDOR, candor
from benchmarks.serving.turns import CONNECTIONS, DEADLINE_S, EAGER, OVERLOAD, Options, Turns, key
from benchmarks.side_by_side.environments import versions

PART = "serving"
_BINARY = ("npy", "V2 binary")
_BINARY_GOALS = {1: 2.5, 16: 3.0, 64: 3.0}
_JSON_GOAL = 2.0


def part(
    results: Turns, pythons: Mapping[str, Path], missing: Mapping[str, str], options: Options, command: str
) -> str:
    """Return the part `PART` of the report.

    Args:
        results: Results of the turns.
        pythons: Interpreter of each peer's environment, by name among `MODES`.
        missing: Why peers were left out, by title.
        options: Options of the run.
        command: Its command line.
    """
    return marked(
        PART,
        [
            *_closed(results),
            "",
            *_workers(results),
            *_faults(results),
            "",
            *_goals(results),
            "",
            "Modes of the peers, one worker unless the table says more; the fastest one counts:",
            "",
            *(
                f"- {name} ({versions(python, MODES[name].package)}): {MODES[name].how}"
                for name, python in pythons.items()
            ),
            *(f"- {title} was left out: {' '.join(why.split())[-200:]}" for title, why in missing.items()),
            "",
            f"- Command: `{command}`; medians of {options.rounds} turns of {options.seconds:g} s.",
            f"- Hardware: {processor()}, {os.cpu_count()} cores, shared with wrk; {platform.system()}. "
            f"Load when the run ended: {os.getloadavg()[0]:.1f}.",
        ],
    )


def _closed(results: Turns) -> list[str]:
    lines = [
        "Requests per second, one 3 × 32 × 32 image each, at 1 / 16 / 64 connections, and processor time per request "
        "at 64 (of all processes of the server):",
        "",
        "| | 1 | 16 | 64 | p99 / p50 at 64 | µs per request |",
        "|---|---|---|---|---|---|",
    ]
    for name, payload in _everyone():
        where = [key("closed", name, payload, connections) for connections in CONNECTIONS]
        if any(one in results for one in where):
            lines.append(f"| {name}, {payload} | {_cells(results, where)} |")
    alone = [_median(results, "in-process", f"batches_of_{size}") for size in (1, 32)]
    if all(map(math.isfinite, alone)):
        lines.append(
            f"| ONNX Runtime in process | {_count(alone[0])} (batches of 1) | | "
            f"{_count(alone[1])} (batches of 32) | | |"
        )
    return lines


def _workers(results: Turns) -> list[str]:
    """Return the table of several workers; nothing if they were not measured."""
    numbers = sorted({int(where.split("|")[2]) for where in results if where.startswith("workers|")})
    if not numbers:
        return []
    lines = [
        "Several workers: the same. A worker of a peer is a process that runs the model:",
        "",
        "| | workers | 1 | 16 | 64 | p99 / p50 at 64 | µs per request |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, payload in _everyone():
        for number in numbers:
            where = [key("workers", name, number, payload, connections) for connections in CONNECTIONS]
            if any(one in results for one in where):
                lines.append(f"| {name}, {payload} | {number} | {_cells(results, where)} |")
    return [*lines, ""]


def _faults(results: Turns) -> list[str]:
    """Return what broke or was refused, which the rates leave out; `eager` and `overload` are there to be refused."""
    lines = []
    for where, turns in results.items():
        broken = max(turn.get("broken", 0) for turn in turns)
        refused = max(turn.get("refused_per_s", 0) for turn in turns)
        if (broken or refused) and not where.startswith(("eager", "overload")):
            lines.append(f"- {where.replace('|', ', ')}: {broken} broken, {refused:,.0f} refused per second")
    if not lines:
        return ["No connection broke, no request timed out, and none was refused."]
    return [
        "Broken connections and timed-out requests, and refused requests, in the worst turn; the rates leave them out:",
        "",
        *lines,
    ]


def _everyone() -> list[tuple[str, str]]:
    """Return the names of all servers, each with those of its payloads, ours first."""
    return [(CANDOR, payload) for payload in candor("").payloads] + _peers()


def _peers() -> list[tuple[str, str]]:
    return [(name, payload) for name, mode in MODES.items() for payload in mode.server(1).payloads]


def _cells(results: Turns, where: Sequence[str]) -> str:
    """Return the rates at each number of connections, p99 / p50 and the processor time at the last."""
    rates = [_count(_median(results, one, "per_s")) for one in where]
    spread = _median(results, where[-1], "p99_ms") / _median(results, where[-1], "p50_ms")
    return " | ".join([*rates, _plain(spread), _count(_median(results, where[-1], "processor_us"))])


def _goals(results: Turns) -> list[str]:
    rows: list[tuple[str, float, str, bool]] = []

    def at_least(what: str, value: float, goal: float, unit: str = "×") -> None:
        rows.append((what, value, f"≥ {goal:g}{unit}", value >= goal))

    def at_most(what: str, value: float, goal: float, unit: str) -> None:
        rows.append((what, value, f"≤ {goal:g}{unit}", value <= goal))

    for connections, goal in _BINARY_GOALS.items():
        peer, best = _best(results, _peers(), connections)
        for payload in _BINARY:
            ratio = _rate(results, CANDOR, payload, connections) / best
            at_least(f"{payload} at {connections}, compared with the best peer on any payload ({peer})", ratio, goal)
    for connections in CONNECTIONS:
        peer, best = _best(results, [one for one in _peers() if one[1] == "V2 JSON"], connections)
        ratio = _rate(results, CANDOR, "V2 JSON", connections) / best
        at_least(f"V2 JSON at {connections}, compared with the best peer's ({peer})", ratio, _JSON_GOAL)
    many = _median(results, "in-process", "batches_of_32")
    at_least(
        "npy at 64, compared with ONNX Runtime in process", 100 * _rate(results, CANDOR, "npy", 64) / many, 50, " %"
    )
    for payload in _BINARY:
        rate = 32 * _median(results, key("batches", payload), "per_s")
        at_least(
            f"{payload}, 32 images per request, compared with ONNX Runtime in process", 100 * rate / many, 90, " %"
        )
    at_most("npy at 64, p99 / p50", _spread(results, CANDOR, "npy"), 2, "×")
    at_most("calibration and decision of one row", _median(results, "in-process", "decision_us"), 20, " µs")
    on, off = (_median(results, key("log", variant), "per_s") for variant in ("on", "off"))
    at_most("loss of throughput by logging", 100 * (1 - on / off), 10, " %")
    peak, goodput = _median(results, key("overload", "peak"), "per_s"), _median(results, "overload|open", "per_s")
    overload = f"a model of 5 ms, an open loop at {OVERLOAD:g} × capacity"
    at_least(f"{overload}: goodput / peak", 100 * goodput / peak, 90, " %")
    at_most(
        f"{overload}: p99 of answered requests", _median(results, "overload|open", "p99_ms"), 1e3 * DEADLINE_S, " ms"
    )
    for limit in (64, 1024):
        rates = [_median(results, key("eager", limit, name), "per_s") for name in ("peak", EAGER)]
        what = f"{EAGER} eager clients, maximum {limit} queued rows: goodput / that of 64 clients"
        at_least(what, 100 * rates[1] / rates[0], 75, " %")
    lines = ["| | measured | goal | |", "|---|---|---|---|"]
    for what, value, goal_shown, met in rows:
        if math.isfinite(value):
            unit = goal_shown.split(maxsplit=2)[2:] or ["×"]
            lines.append(f"| {what} | {value:.3g} {unit[0]} | {goal_shown} | {'met' if met else 'missed'} |")
    return lines


def _median(results: Turns, where: str, name: str) -> float:
    """Return the median of a result's turns; NaN without turns or answers."""
    found = [turn[name] for turn in results.get(where, []) if turn[name] is not None]
    return (statistics.median(found) if found else math.nan) or math.nan


def _rate(results: Turns, server: str, payload: str, connections: int) -> float:
    return _median(results, key("closed", server, payload, connections), "per_s")


def _spread(results: Turns, server: str, payload: str) -> float:
    where = key("closed", server, payload, 64)
    return _median(results, where, "p99_ms") / _median(results, where, "p50_ms")


def _best(results: Turns, servers: Sequence[tuple[str, str]], connections: int) -> tuple[str, float]:
    """Return the fastest server and payload, and its rate; NaN if none was measured."""
    rates = {f"{name}, {payload}": _rate(results, name, payload, connections) for name, payload in servers}
    return max(((one, rate) for one, rate in rates.items() if rate > 0), key=itemgetter(1), default=("", math.nan))


def _count(value: float) -> str:
    return f"{value:,.0f}" if math.isfinite(value) else "–"


def _plain(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "–"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")
