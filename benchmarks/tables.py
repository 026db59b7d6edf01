"""One table row through LightGBM: the service with an imported model beside MLServer's own LightGBM runtime.

    python -m benchmarks.tables --seconds 5 --rounds 3

A model of 100 trees of 31 leaves on 30 columns is trained, imported by `candor import lightgbm`, and served by both
with one worker process. Ours also calibrates, decides, logs and counts. Requests are one row: an Open Inference
Protocol tensor in JSON (both servers), and an object of named columns (ours). wrk (one thread; must be installed) posts
over 1, 16 and 64 connections, in turns.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import lightgbm
import numpy as np

from benchmarks.serving.__main__ import CACHE
from benchmarks.serving.formats import Payload, Request, read_list
from benchmarks.serving.model import Prepared
from benchmarks.serving.servers import Server, candor, free_port, running
from benchmarks.serving.wrk import measure
from benchmarks.side_by_side.environments import interpreter

COLUMNS = [f"c{place:02}" for place in range(30)]
INSTALL = ("mlserver==1.7.1", "mlserver-lightgbm==1.7.1", f"lightgbm=={lightgbm.__version__}")
CONNECTIONS = (1, 16, 64)


def prepare(folder: Path) -> tuple[Prepared, Path, np.ndarray]:
    """Train a model and import it; return the bundle, the model's file and rows (N, 30) float32."""
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
    return prepared, file, rows[4000:4064]


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


def mlserver(python: Path, prepared: Prepared, port: int, folder: Path) -> list[str]:
    """Return the command of MLServer with its LightGBM runtime."""
    ports = {"http_port": port, "grpc_port": free_port(), "metrics_port": free_port()}
    settings = {**ports, "parallel_workers": 0, "debug": False}
    model = {
        "name": "table",
        "implementation": "mlserver_lightgbm.LightGBMModel",
        "parameters": {"uri": str(prepared.onnx)},
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "model-settings.json").write_text(json.dumps(model), encoding="utf-8")
    return [str(python.with_name("mlserver")), "start", str(folder)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--wrk", default=shutil.which("wrk"))
    chosen = parser.parse_args()
    infer = "/v2/models/table/infer"
    ours = Server(
        candor("table").command,
        {"V2 JSON": tensor(infer, "input"), "JSON of columns": named("/v1/models/table/predict")},
        "/readyz",
        environment={"CANDOR_THREADS": "1"},
    )
    peer = Server(mlserver, {"V2 JSON": tensor(infer, "predict")}, "/v2/models/table/ready", INSTALL)
    servers: Mapping[str, tuple[Server, Path]] = {
        "Candor": (ours, Path(sys.executable)),
        "MLServer": (peer, interpreter(chosen.cache, "mlserver-lightgbm", INSTALL)),
    }
    rates: dict[tuple[str, str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        prepared, file, rows = prepare(folder)
        assert file.exists()
        for _ in range(chosen.rounds):
            for name, (server, python) in servers.items():
                with running(name, server, python, prepared, folder) as one:
                    for payload, how in server.payloads.items():
                        status, body, _ = one.ask(how.write(rows[:1]))
                        assert status == 200, body[:500]
                        for connections in CONNECTIONS:
                            found = measure(
                                chosen.wrk,
                                one.port,
                                how.write(rows[:1]),
                                connections=connections,
                                seconds=chosen.seconds,
                                scratch=folder,
                            )
                            rates.setdefault((name, payload, connections), []).append(found.per_s)
    print(f"{' '.join(INSTALL)}, Python {platform.python_version()}, medians of {chosen.rounds} turns, requests/s")
    for payload in ours.payloads:
        for connections in CONNECTIONS:
            own = float(np.median(rates["Candor", payload, connections]))
            their = float(np.median(rates["MLServer", "V2 JSON", connections]))
            print(f"{payload:16} {connections:3} connections: {own:7.0f} against {their:7.0f}: {own / their:.2f}x")


if __name__ == "__main__":
    main()
