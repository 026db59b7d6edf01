"""Measure the time from an activation to the first answer by its revision, on each of three replicas.

python benchmarks/activation.py --moves 40 --poll 0.5

Goal: under 200 ms after the activation was answered. The replicas share one PostgreSQL, on which a database is made and
dropped again. A client of each replica asks every few milliseconds. The first replica takes all activations.
"""

from __future__ import annotations

import argparse
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx
import numpy as np
import psycopg

REPLICAS = 3
POLICY = {"positive": "top", "bands": [{"action": "accept", "when": {"min_probability": 0.5}}, {"action": "review"}]}


class Replica:
    """A replica, and a client that notes when each revision first answers."""

    def __init__(self, environment: dict[str, str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port)]
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)
        self.revision = ""
        self.since = 0.0
        self._stopped = False
        self._client = threading.Thread(target=self._ask)

    def start(self, *, notices: bool) -> None:
        """Wait until it is ready, and until changes reach it as they should; then begin to ask."""
        while not self._is_ready(notices):
            if self.process.poll() is not None:
                sys.exit(f"A replica did not start: exit status {self.process.returncode}.")
            time.sleep(0.05)
        self._client.start()

    def stop(self) -> None:
        """End the client and the process."""
        self._stopped = True
        if self._client.ident:
            self._client.join()
        self.process.terminate()
        self.process.wait()
        self.http.close()

    def _is_ready(self, notices: bool) -> bool:
        try:
            ready = self.http.get("/readyz").status_code == 200
            return ready and (not notices or "candor_state_notices 1.0" in self.http.get("/metrics").text)
        except httpx.TransportError:
            return False

    def _ask(self) -> None:
        body = {"inputs": np.zeros((1, 8, 8, 1), np.uint8).tolist()}
        with httpx.Client(base_url=self.http.base_url, timeout=30) as http:
            while not self._stopped:
                revision = http.post("/predict", json=body).json()["revision"]
                if revision != self.revision:
                    self.since, self.revision = time.perf_counter(), revision
                time.sleep(0.005)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", type=Path, default=Path("examples/bundles"))
    parser.add_argument("--server", default="postgresql://postgres@127.0.0.1:5432/postgres")
    parser.add_argument("--moves", type=int, default=40)
    parser.add_argument("--poll", type=float, default=0.5, help="CANDOR_POLL_INTERVAL_S")
    parser.add_argument("--no-notices", action="store_true", help="replicas only poll, as behind a pooler")
    arguments = parser.parse_args()
    name = f"candor_benchmark_{secrets.token_hex(4)}"
    with psycopg.connect(arguments.server, autocommit=True) as server, ExitStack() as stack:
        server.execute(f'CREATE DATABASE "{name}"')
        stack.callback(server.execute, f'DROP DATABASE "{name}" WITH (FORCE)')
        environment = {
            **os.environ,
            "CANDOR_BUNDLES": str(arguments.bundles.resolve()),
            "CANDOR_DATABASE_URL": urlunsplit(urlsplit(arguments.server)._replace(path=f"/{name}")),
            "CANDOR_DEFAULT_MODEL": "digits",
            "CANDOR_POLL_INTERVAL_S": str(arguments.poll),
            "CANDOR_UPLOADS": stack.enter_context(tempfile.TemporaryDirectory()),
        }
        if arguments.no_notices:
            environment["CANDOR_DATABASE_DIRECT_URL"] = arguments.server
        replicas = []
        for _ in range(REPLICAS):
            replicas.append(Replica(environment))
            stack.callback(replicas[-1].stop)
        for replica in replicas:
            replica.start(notices=not arguments.no_notices)
        since_request, since_answer = 1000 * np.array(measured(replicas, arguments.moves)).transpose(1, 2, 0)
        print(f"{arguments.moves} activations, {os.cpu_count()} cores, poll every {arguments.poll:g} s")
        for number, (request, answer) in enumerate(zip(since_request, since_answer, strict=True), start=1):
            print(
                f"replica {number}: {np.median(request):.0f} ms after the request (largest {request.max():.0f}), "
                f"{np.median(answer):.0f} ms after its answer (largest {answer.max():.0f})"
            )


def measured(replicas: list[Replica], moves: int) -> list[list[list[float]]]:
    """Return, by activation, the seconds from the request, and from its answer, to the first prediction by replica."""
    http, waits = replicas[0].http, []
    proposed = http.put("/v1/models/digits/policies/benchmark", json=POLICY)
    proposed.raise_for_status()
    revisions = [proposed.json()["id"], http.get("/readyz").json()["models"]["digits"]]
    for move in range(moves):
        wanted, epoch = revisions[move % 2], http.get("/v1/models/digits/revisions").json()["epoch"]
        began = time.perf_counter()
        path, given = f"/v1/models/digits/revisions/{wanted}/activate", {"if-match": f'"{epoch}"'}
        http.post(path, json={"reason": "benchmark"}, headers=given).raise_for_status()
        answered = time.perf_counter()
        while any(replica.revision != wanted for replica in replicas):
            time.sleep(0.002)
        waits.append([[replica.since - start for replica in replicas] for start in (began, answered)])
    return waits


if __name__ == "__main__":
    main()
