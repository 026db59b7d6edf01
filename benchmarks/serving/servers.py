"""Start a server, ask it, and stop it with all its processes."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.serving.formats import (
    Payload,
    Request,
    npy,
    plain_json,
    png,
    read_ours,
    read_v2,
    v2_binary,
    v2_json,
)
from benchmarks.serving.model import Prepared
from benchmarks.serving.processors import MARK, processes, processor_seconds

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path(__file__).parent / "peers"
CANDOR = "Candor"
_PATIENCE_S = 120.0
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "THREADS": "1"}


@dataclass(frozen=True)
class Server:
    """A server in the benchmark.

    Attributes:
        command: Makes the command line from an interpreter, a prepared model, a port and a scratch folder.
        payloads: Formats by name.
        ready: Path that answers 200 when it is ready.
        install: pip's arguments for its environment; empty for ours.
        environment: Further environment variables.
    """

    command: Callable[[Path, Prepared, int, Path], list[str]]
    payloads: Mapping[str, Payload]
    ready: str
    install: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Running:
    """A running server.

    Attributes:
        name: Its name.
        port: Port on 127.0.0.1.
        payloads: Formats by name.
        pid: Its first process.
        mark: Value of `MARK` in the environment of its processes.
    """

    name: str
    port: int
    payloads: Mapping[str, Payload]
    pid: int
    mark: str

    def processor_seconds(self) -> float:
        """Return the processor time so far of all its processes."""
        return processor_seconds(self.pid, self.mark)

    def ask(self, request: Request) -> tuple[int, bytes, Mapping[str, str]]:
        """Post a request once."""
        address = f"http://127.0.0.1:{self.port}{request.path}"
        message = urllib.request.Request(address, request.body, dict(request.headers), method="POST")
        try:
            with urllib.request.urlopen(message, timeout=60) as answer:
                return answer.status, answer.read(), {key.lower(): value for key, value in answer.headers.items()}
        except urllib.error.HTTPError as error:
            return error.code, error.read(), {}

    def check(self, payload: str, prepared: Prepared) -> None:
        """Compare its answers with ONNX Runtime's.

        Raises:
            ValueError: They differ.
        """
        how = self.payloads[payload]
        images = prepared.inputs[:4]
        expected = (prepared.probabilities if how.calibrated else prepared.logits)[:4]
        for rows in ([0], [1], [0, 1, 2, 3]):
            if len(rows) > 1 and how.one_image:
                continue
            status, body, headers = self.ask(how.write(images[rows]))
            if status != 200:
                raise ValueError(f"{self.name}, {payload}: {status} {body[:300]!r}")
            got = how.read(body, headers)
            if not np.allclose(got, expected[rows], atol=1e-4):
                raise ValueError(f"{self.name}, {payload}: {got} instead of {expected[rows]}")


@contextmanager
def running(
    name: str, server: Server, python: Path, prepared: Prepared, scratch: Path, **environment: str
) -> Iterator[Running]:
    """Start a server, wait until it is ready, and stop it at the end.

    Raises:
        RuntimeError: It is not ready in time.
    """
    port, mark = free_port(), secrets.token_hex(8)
    folder = scratch / mark
    folder.mkdir(parents=True)
    log = folder / "log"
    variables = {key: value for key, value in os.environ.items() if not key.startswith("CANDOR_")}
    variables |= {**_ONE_THREAD, **server.environment, **environment, "MODEL": str(prepared.onnx), MARK: mark}
    with log.open("wb") as output:
        process = subprocess.Popen(
            server.command(python, prepared, port, folder),
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=PEERS if server.install else ROOT,
            process_group=0,  # in the session of what runs beside it, so that priorities count between them
        )
    try:
        _wait(f"http://127.0.0.1:{port}{server.ready}", process, log)
        yield Running(name, port, server.payloads, process.pid, mark)
    finally:
        _stop(process, mark)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"{url} does not answer: {log.read_text(errors='replace')[-1500:]}")


def _stop(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a server, and kill what is left of its processes after 20 s, also those with a session of their own."""
    before = processes(process.pid, mark)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    for pid in before | processes(process.pid, mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _candor(_: Path, prepared: Prepared, port: int, folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "service.cli", "serve", "--port", str(port)),
        *("--bundles", str(prepared.bundles), "--policies", str(prepared.policies)),
        *("--database-url", f"sqlite:///{folder}/state.db"),
    ]


def candor(model: str, workers: int = 1) -> Server:
    """Return our service with one of its models."""
    predict, infer = f"/v1/models/{model}/predict", f"/v2/models/{model}/infer"
    payloads = {
        "npy": Payload(npy(predict), read_ours, calibrated=True),
        "V2 binary": Payload(v2_binary(infer), read_v2),
        "V2 JSON": Payload(v2_json(infer), read_v2),
        "JSON": Payload(plain_json(predict), read_ours, calibrated=True),
        "PNG": Payload(png(predict), read_ours, calibrated=True, one_image=True),
    }
    environment = {"CANDOR_THREADS": "1", "CANDOR_WORKERS": str(workers)}
    return Server(_candor, payloads, "/readyz", environment=environment)
