"""What a challenger costs: processor time of the service per request, with and without one.

    python -m benchmarks.challenger --bundles examples/bundles [--turns 10] [--requests 4000]

The challenger is another bundle of the same size (the same network with one more addition), for 10 % of the groups.
Turns with and without it alternate. Measured is the processor time of the service: predictions, log, challenger,
and the writing of both. On a busy machine it says more than requests per second.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import httpx
import numpy as np
import onnx
from onnx import helper

import bundle as bundles
from bundle import BundleContents

CONNECTIONS: Final = 8
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def add_bundle(root: Path) -> None:
    """Write the digits' network once more, with one more addition: another model file of the same size."""
    found = bundles.verify(bundles.find(root)[-1].path)
    changed = onnx.load_from_string(found.model_bytes)
    output = changed.graph.output[0].name
    for node in changed.graph.node:
        node.output[:] = ["before" if name == output else name for name in node.output]
    changed.graph.initializer.append(helper.make_tensor("nothing", onnx.TensorProto.FLOAT, [1], [0.0]))
    changed.graph.node.append(helper.make_node("Add", ["before", "nothing"], [output]))
    manifest = found.manifest
    bundles.write(
        root,
        BundleContents(
            model=manifest.model,
            labels=manifest.labels,
            input=manifest.input,
            model_bytes=changed.SerializeToString(),
            calibrator=found.calibrator,
            reference=found.reference,
            golden=found.golden,
            architecture=manifest.architecture,
            training=manifest.training,
            versions=manifest.versions,
            metrics=manifest.metrics,
            report=found.report,
            diagrams=found.diagrams,
        ),
    )


def requests_of(rows: int, count: int, shape: tuple[int, ...], host: str) -> list[bytes]:
    """Return requests of random rows, each row a group of its own."""
    rng = np.random.default_rng(rows)
    made = []
    for _ in range(count):
        body = json.dumps({"inputs": rng.integers(0, 256, (rows, *shape)).tolist()}).encode()
        head = (
            f"POST /predict HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        )
        made.append(head.encode() + b"\r\n\r\n" + body)
    return made


def ask(port: int, requests: list[bytes]) -> None:
    """Send requests one after the other over one connection."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rb") as answers:
        for request in requests:
            connection.sendall(request)
            if b" 200 " not in answers.readline():
                raise RuntimeError("a request failed")
            length = 0
            while (line := answers.readline()) != b"\r\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            answers.read(length)


def processor_s(pid: int) -> float:
    """Return the processor time of a process so far, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def settled(http: httpx.Client) -> None:
    """Wait until nothing waits for the log or the challenger."""
    waiting = ("candor_log_depth 0.0", "candor_challenger_queue_rows 0.0")
    while not all(text in http.get("/metrics").text for text in waiting):
        time.sleep(0.05)


def turn(http: httpx.Client, pid: int, port: int, requests: list[bytes]) -> float:
    """Return processor seconds of the service for these requests."""
    settled(http)
    began = processor_s(pid)
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(lambda number: ask(port, requests[number::CONNECTIONS]), range(CONNECTIONS)))
    settled(http)
    return processor_s(pid) - began


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundles", type=Path, default=Path("examples/bundles"))
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--requests", type=int, default=4_000)
    parser.add_argument("--share", type=float, default=0.1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        root = Path(shutil.copytree(given.bundles, Path(folder) / "bundles"))
        environment = {
            **os.environ,
            "CANDOR_BUNDLES": str(root),
            "CANDOR_DATABASE_URL": f"sqlite:///{folder}/state.db",
            "CANDOR_DEFAULT_MODEL": "digits",
            "CANDOR_MONITOR_INTERVAL_S": "86400",
            "CANDOR_UPLOADS": f"{folder}/uploads",
        }
        command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port)]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
                measure(http, process.pid, port, root, given)
        finally:
            process.terminate()
            process.wait()


def measure(http: httpx.Client, pid: int, port: int, root: Path, given: argparse.Namespace) -> None:
    """Alternate turns with and without a challenger, and print what they cost."""
    while True:
        try:
            if http.get("/readyz").status_code == 200:
                break
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    add_bundle(root)
    (version,) = map(int, http.post("/v1/models/digits/load").raise_for_status().json()["proposed"])
    path, body = "/v1/models/digits/challengers/other", {"bundle": version, "share": given.share}
    shape = tuple(http.get("/v1/models").json()["items"][0]["input"]["shape"])
    print(f"{given.turns} turns each, share {given.share:.0%}, {os.cpu_count()} cores")
    print("| rows per request | without (ms) | with (ms) | more |\n|---|---|---|---|")
    for rows in (1, 64):
        requests = requests_of(rows, given.requests if rows == 1 else given.requests // 10, shape, f"127.0.0.1:{port}")
        spent: dict[bool, list[float]] = {False: [], True: []}
        turn(http, pid, port, requests)
        for number in range(2 * given.turns):
            challenged = number % 4 in (1, 2)
            if challenged:
                http.put(path, json=body).raise_for_status()
            spent[challenged].append(turn(http, pid, port, requests) / len(requests) * 1000)
            if challenged:
                http.delete(path).raise_for_status()
        without, beside = (float(np.median(spent[which])) for which in (False, True))
        print(f"| {rows} | {without:.3f} | {beside:.3f} | {beside / without - 1:+.1%} |")


if __name__ == "__main__":
    main()
