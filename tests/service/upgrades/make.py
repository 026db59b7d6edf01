"""Writes the fixture of a schema with the code that had it: bundle, state on both databases, what was true of it.

    git archive 222d80d | tar --extract --one-top-level=/tmp/first     # its newest schema is 0001
    PYTHONPATH=/tmp/first .venv/bin/python tests/service/upgrades/make.py 0001

It needs PostgreSQL (CANDOR_TEST_POSTGRES) and pg_dump. Everything goes through the service of that time, over HTTP and
its command line; only the network is smaller than those it could train, so that the fixture is small.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import numpy as np
import psycopg
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent
SERVER = os.environ.get("CANDOR_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432/postgres")
LABELLED, UNLABELLED = 480, 20
PATIENCE_S = 120
[_package] = import_module("service").__path__
THEN = Path(_package).parent  # where the code of that time lies
POLICY = {
    "positive": "top",
    "bands": [{"action": "accept", "when": {"min_precision": 0.8}}, {"action": "review"}],
    "explore": {"share": 1.0, "actions": ["accept"]},
}


def train(root: Path) -> tuple[np.ndarray, list[str]]:
    """Train and export a linear network; return images that it has not seen, dimmed, and their labels."""
    training: Any = import_module("training")

    class Linear(nn.Module):
        size = 8

        def __init__(self, channels: int, classes: int, *, dropout: float = 0.0) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Flatten(), nn.Linear(channels * 64, classes))

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.layers(images)
            return logits

    import_module("training.models").MODELS["linear"] = Linear
    config = training.TrainConfig(dataset="digits", model="linear", seed=9, learning_rate=0.03)
    pipeline: Any = import_module("training.pipeline")
    pipeline.draw = lambda *_: {}  # the diagrams are larger than all the rest
    training.train_bundle(config, root)
    data = import_module("training.data").DATASETS["digits"]()
    rows = config.splits(len(data)).feedback[: LABELLED + UNLABELLED]
    dim = import_module("training.data.drift").dim
    return dim(data.images[rows], seed=7), [data.label_names[label] for label in data.labels[rows]]


def candor(database: str, *arguments: str) -> None:
    environment = os.environ | {"CANDOR_DATABASE_URL": database}
    subprocess.run([sys.executable, "-m", "service.cli", *arguments], env=environment, cwd=THEN, check=True)


@contextmanager
def serving(database: str, bundles: Path, policies: Path, key: str) -> Iterator[httpx.Client]:
    """Run the service of that time until the block ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "CANDOR_DATABASE_URL": database,
        "CANDOR_BUNDLES": str(bundles),
        "CANDOR_POLICIES": str(policies),
    }
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port)]
    process = subprocess.Popen(command, env=environment, cwd=THEN)
    try:
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=PATIENCE_S) as client:
            give_up = time.monotonic() + PATIENCE_S
            while not _ready(client):
                if process.poll() is not None or time.monotonic() > give_up:
                    sys.exit("the service did not start")
                time.sleep(0.1)
            yield client
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def live(client: httpx.Client, images: np.ndarray, labels: list[str]) -> dict[str, Any]:
    """Use every part of the service that writes state, and say what must be true of it later."""

    def ask(method: str, path: str, **options: Any) -> Any:
        response = client.request(method, path, **options)
        if response.is_error:
            sys.exit(f"{method} {path}: {response.text}")
        return response.json()

    def move(path: str, **body: str) -> None:
        epoch = ask("GET", "/v1/models/digits/revisions")["epoch"]
        ask("POST", f"/v1/models/digits/{path}", json=body, headers={"if-match": f'"{epoch}"'})

    predicted = []
    for start in range(0, len(images), 100):
        rows = range(start, min(start + 100, len(images)))
        body = {
            "inputs": images[rows.start : rows.stop].tolist(),
            "references": [f"scan-{row}" for row in rows],
            "groups": [f"card-{row // 2}" for row in rows],
        }
        predicted += ask("POST", "/predict", params={"policy": "auto-read"}, json=body)["predictions"]
    time.sleep(1)  # the log's own time
    late = range(LABELLED - 10, LABELLED)
    batch = {
        "items": [
            {"prediction_id": row["prediction_id"], "label": label, "source": "reviewer"}
            for row, label in zip(predicted[: late.start], labels, strict=False)
        ]
    }
    requests: list[tuple[str, dict[str, Any]]] = [
        ("by-id", batch),
        ("by-reference", {"items": [{"reference": f"scan-{n}", "label": labels[n]} for n in late]}),
        ("pending", {"items": [{"reference": "scan-later", "label": "3"}]}),
        ("corrected", {"items": [{"reference": "scan-0", "label": labels[0], "source": "judge"}]}),
    ]
    answers = {key: ask("POST", "/feedback", json=body, headers={"idempotency-key": key}) for key, body in requests}
    refit = ask("POST", "/recalibrate", json={"mode": "propose"}, headers={"prefer": "wait=60"})
    ask("POST", "/recalibrate", json={"mode": "dry_run"}, headers={"prefer": "wait=60"})
    move(f"revisions/{refit['revision']}/activate", reason="the lamp dims", accept_change=True)
    ask("PUT", "/v1/models/digits/policies/by-hand", json=POLICY)
    later = ask("GET", "/v1/models/digits/revisions")["items"][0]["id"]
    move(f"revisions/{later}/activate", reason="reviewed", accept_change=True)
    move("rollback", reason="too many reviews")
    answer = ask("POST", "/predict", params={"policy": "auto-read"}, json={"inputs": images[:8].tolist()})
    page = ask("GET", "/v1/models/digits/revisions")
    time.sleep(1)
    return {
        "page": page,
        "revisions": {item["id"]: ask("GET", f"/v1/models/digits/revisions/{item['id']}") for item in page["items"]},
        "images": images[:8].tolist(),
        "answer": answer,
        "predictions": len(predicted) + len(answer["predictions"]),
        "feedback": {key: {"body": body, "answer": answers[key]} for key, body in requests},
        "refit": refit,
    }


def on(database: str, folder: Path, images: np.ndarray, labels: list[str], policies: Path) -> dict[str, Any]:
    """Fill one database and return what is true of it."""
    keys = {}
    for name, scopes in {"ops": ["admin"], "till": ["predict", "feedback"], "left": ["admin"]}.items():
        file = folder / name
        candor(
            database, "keys", "create", "--name", name, *(f"--scope={scope}" for scope in scopes), "--file", str(file)
        )
        keys[name] = file.read_text().strip()
        file.unlink()
    candor(database, "keys", "revoke", keys["left"][4:].partition("_")[0])
    with serving(database, folder / "bundles", policies, keys["ops"]) as client:
        return live(client, images, labels) | {"keys": keys}


def main(schema: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        images, labels = train(folder / "bundles")
        policies = THEN / "examples" / "policies"
        facts = {"sqlite": on(f"sqlite:///{folder}/made.db", folder, images, labels, policies)}
        with closing(sqlite3.connect(folder / "made.db")) as connection:
            if connection.execute("SELECT version_num FROM alembic_version").fetchall() != [(schema,)]:
                sys.exit(f"{THEN} does not hold the code of schema {schema}")
            connection.execute("VACUUM INTO ?", (str(folder / "state.db"),))
        name = f"candor_made_{secrets.token_hex(4)}"
        address = urlunsplit(urlsplit(SERVER)._replace(path=f"/{name}"))
        with psycopg.connect(SERVER, autocommit=True) as server:
            server.execute(f'CREATE DATABASE "{name}"')
            try:
                facts["postgresql"] = on(address, folder, images, labels, policies)
                dump = ["pg_dump", "--no-owner", "--no-privileges", "--rows-per-insert=200", address]
                written = subprocess.run(dump, stdout=subprocess.PIPE, text=True, check=True).stdout
            finally:
                server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        # Newer versions of pg_dump begin and end with commands of psql's own.
        lines = [line for line in written.splitlines() if not line.startswith(("\\", "--"))]
        (folder / "state.sql").write_text("\n".join(lines) + "\n")
        (folder / "facts.json").write_text(json.dumps(facts))
        with tarfile.open(HERE / f"{schema}.tar.xz", "w:xz", preset=9) as archive:
            for part in ("bundles", "state.db", "state.sql", "facts.json"):
                archive.add(folder / part, part)
                print(part, (folder / part).stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1])
