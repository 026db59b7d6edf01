"""One table row through LightGBM: the service with an imported model beside MLServer's own LightGBM runtime.

    python -m benchmarks.tables --seconds 5 --rounds 3 --keep turns.json --write benchmarks/RESULTS.md

A model of 100 trees of 31 leaves on 30 columns is trained, imported by `candor import lightgbm`, and served by both:
by ours in one worker process, by MLServer in each of `MODES`, of which the fastest counts. Ours also calibrates,
decides, logs and counts. Requests are one row: an Open Inference Protocol tensor in JSON (both servers), and an object
of named columns (ours). wrk (one thread; must be installed) posts over 1, 16 and 64 connections, in turns. Beside the
rates it prints the processor time of a request: on a machine that does other work too, that ratio swings less.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import lightgbm
import numpy as np

from benchmarks.results_file import marked, replace
from benchmarks.serving.__main__ import CACHE
from benchmarks.serving.formats import Payload, Request, read_list
from benchmarks.serving.model import Prepared
from benchmarks.serving.report import processor
from benchmarks.serving.servers import CANDOR, Running, Server, candor, free_port, running
from benchmarks.serving.wrk import measure
from benchmarks.side_by_side.environments import interpreter

PART = "tables"
COLUMNS = [f"c{place:02}" for place in range(30)]
INSTALL = (
    *("mlserver==1.7.1", "mlserver-lightgbm==1.7.1", f"lightgbm=={lightgbm.__version__}"),
    "uvloop<0.22",  # its workers fail with later ones
)
CONNECTIONS = (1, 16, 64)
MODES: Mapping[str, tuple[int, Mapping[str, float]]] = {
    "MLServer, in process": (0, {}),
    "MLServer, 1 parallel worker": (1, {}),
    "MLServer, 2 parallel workers": (2, {}),
    "MLServer, adaptive batching": (0, {"max_batch_size": 32, "max_batch_time": 0.001}),
}
"""MLServer's modes: `parallel_workers`, and further settings of the model."""
Turns = dict[str, list[dict[str, dict[str, float]]]]
"""For each server its turns: figures by payload and number of connections."""


def prepare(folder: Path) -> tuple[Prepared, np.ndarray]:
    """Train a model and import it; return the bundle and rows (N, 30) float32."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(6000, len(COLUMNS))).astype(np.float32)
    chance = 1 / (1 + np.exp(-(rows[:, 0] * rows[:, 1] + rows[:, 2] - 2)))
    labels = (rng.random(len(rows)) < chance).astype(int)
    data = lightgbm.Dataset(rows[:4000], labels[:4000], feature_name=COLUMNS)
    options = {"objective": "binary", "num_leaves": 31, "verbose": -1, "num_threads": 1}
    booster = lightgbm.train(options, data, 100)
    file = folder / "model.txt"
    booster.save_model(file)
    validation = folder / "rows.csv"
    np.savetxt(
        validation,
        np.column_stack([rows[4000:], labels[4000:]]),
        delimiter=",",
        header=",".join([*COLUMNS, "y"]),
        comments="",
        fmt="%.9g",
    )
    command = [sys.executable, "-m", "service.cli", "import", "lightgbm", file, "--name", "table"]
    subprocess.run(
        [*command, "--validation", validation, "--label", "y", "--out", folder / "bundles"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    policies = folder / "policies" / "table"
    policies.mkdir(parents=True)
    (policies / "default.yaml").write_text(
        'id: default\npositive: "1"\nbands:\n  - {action: block, when: {min_probability: 0.5}}\n  - {action: review}\n'
    )
    scores = np.asarray(booster.predict(rows[4000:4064]), np.float32)
    prepared = Prepared(file, folder / "bundles", folder / "policies", rows[4000:4064], scores, scores)  # type: ignore[arg-type]
    return prepared, rows[4000:4064]


def tensor(path: str, name: str) -> Payload:
    """Return rows as one tensor of the Open Inference Protocol, in JSON."""

    def write(rows: np.ndarray) -> Request:
        values = {"name": name, "datatype": "FP32", "shape": [*rows.shape], "data": rows.ravel().tolist()}
        body = json.dumps({"inputs": [values]}).encode()
        return Request(path, body, {"Content-Type": "application/json"})

    return Payload(write, lambda body, _: np.array(json.loads(body)["outputs"][0]["data"], np.float32))


def named(path: str) -> Payload:
    """Return rows as objects of named columns."""

    def write(rows: np.ndarray) -> Request:
        objects = [dict(zip(COLUMNS, map(float, row), strict=True)) for row in rows]
        return Request(path, json.dumps({"inputs": objects}).encode(), {"Content-Type": "application/json"})

    return Payload(write, read_list)


def mlserver(mode: str) -> Server:
    """Return MLServer with its LightGBM runtime in a mode."""
    parallel, more = MODES[mode]

    def command(python: Path, prepared: Prepared, port: int, folder: Path) -> list[str]:
        ports = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port()}
        settings = {**ports, "parallel_workers": parallel, "debug": False}
        model = {
            "name": "table",
            "implementation": "mlserver_lightgbm.LightGBMModel",
            "parameters": {"uri": str(prepared.onnx)},
            **more,
        }
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        (folder / "model-settings.json").write_text(json.dumps(model), encoding="utf-8")
        return [str(python.with_name("mlserver")), "start", str(folder)]

    payloads = {"V2 JSON": tensor("/v2/models/table/infer", "predict")}
    return Server(command, payloads, "/v2/models/table/ready", INSTALL)


def measure_all(servers: Mapping[str, tuple[Server, Path]], chosen: argparse.Namespace) -> Turns:
    """Measure until each server has enough turns; those that `--keep` has are not repeated.

    Raises:
        RuntimeError: A server refuses the request.
    """
    turns: Turns = json.loads(chosen.keep.read_text()) if chosen.keep and chosen.keep.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        prepared, rows = prepare(folder)
        for number in range(chosen.rounds):
            for name, (server, python) in servers.items():
                if len(turns.get(name, [])) > number:
                    continue
                with running(name, server, python, prepared, folder) as one:
                    turns.setdefault(name, []).append(_turn(one, server, rows[:1], chosen, folder))
                if chosen.keep:
                    chosen.keep.write_text(json.dumps(turns, indent=1), encoding="utf-8")
    return turns


def _turn(
    one: Running, server: Server, row: np.ndarray, chosen: argparse.Namespace, scratch: Path
) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for payload, how in server.payloads.items():
        request = how.write(row)
        status, body, _ = one.ask(request)
        if status != 200:
            raise RuntimeError(f"{one.name}, {payload}: {status} {body[:500]!r}")
        for connections in CONNECTIONS:
            before_s = one.processor_seconds()
            measured = measure(
                chosen.wrk, one.port, request, connections=connections, seconds=chosen.seconds, scratch=scratch
            )
            used_s = one.processor_seconds() - before_s
            answers = measured.per_s * max(1, round(chosen.seconds))  # wrk takes whole seconds
            found[f"{payload}|{connections}"] = {
                "per_s": measured.per_s,
                "us": 1e6 * used_s / answers if answers else math.nan,
                "failed": measured.broken + measured.refused_per_s,
            }
    return found


def part(turns: Turns, payloads: Sequence[str], chosen: argparse.Namespace) -> str:
    """Return the part `PART` of the report."""

    def middle(name: str, payload: str, connections: int, what: str = "per_s") -> float:
        return statistics.median(turn[f"{payload}|{connections}"][what] for turn in turns[name])

    fastest = {one: max(MODES, key=lambda mode: middle(mode, "V2 JSON", one)) for one in CONNECTIONS}
    lines = [
        "Requests per second of one row of 30 columns at 1 / 16 / 64 connections, in brackets compared with the "
        "fastest mode of MLServer; and processor time per request of all processes of the server, in µs:",
        "",
        "| | 1 | 16 | 64 | µs at 1 | 16 | 64 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, payload in [*((mode, "V2 JSON") for mode in MODES), *((CANDOR, payload) for payload in payloads)]:
        cells = []
        for what in ("per_s", "us"):
            for one in CONNECTIONS:
                value, theirs = middle(name, payload, one, what), middle(fastest[one], "V2 JSON", one, what)
                ratio = value / theirs if what == "per_s" else theirs / value
                cells.append(f"{value:,.0f}" + (f" ({ratio:.2f} ×)" if name == CANDOR else ""))
        lines.append(f"| {name}, {payload} | {' | '.join(cells)} |")
    failed = max(found["failed"] for each in turns.values() for turn in each for found in turn.values())
    return marked(
        PART,
        [
            *lines,
            "",
            f"- Broken connections and refused requests per second, in the worst turn: {failed:,.0f}.",
            f"- Fastest mode at 1 / 16 / 64: {' / '.join(fastest.values())}.",
            f"- Command: `python -m benchmarks.tables {shlex.join(sys.argv[1:])}`; medians of {chosen.rounds} turns of "
            f"{chosen.seconds:g} s.",
            f"- {', '.join(INSTALL[:3])}, Python {platform.python_version()}; {processor()}, {os.cpu_count()} cores, "
            f"shared with wrk. Load when the run ended: {os.getloadavg()[0]:.1f}.",
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--wrk", default=shutil.which("wrk"))
    parser.add_argument("--keep", type=Path, help="JSON file of finished turns: read first, then updated")
    parser.add_argument("--write", type=Path, help="Markdown file whose part is replaced")
    chosen = parser.parse_args()
    if chosen.wrk is None:
        parser.error("wrk is not installed: apt-get install wrk, or give its path with --wrk")
    ours = Server(
        candor("table").command,
        {"V2 JSON": tensor("/v2/models/table/infer", "input"), "JSON of columns": named("/v1/models/table/predict")},
        "/readyz",
        environment={"CANDOR_THREADS": "1"},
    )
    theirs = interpreter(chosen.cache, "mlserver-lightgbm", INSTALL)
    servers: Mapping[str, tuple[Server, Path]] = {
        CANDOR: (ours, Path(sys.executable)),
        **{mode: (mlserver(mode), theirs) for mode in MODES},
    }
    text = part(measure_all(servers, chosen), list(ours.payloads), chosen)
    print(text)
    if chosen.write:
        replace(chosen.write, PART, text)


if __name__ == "__main__":
    main()
