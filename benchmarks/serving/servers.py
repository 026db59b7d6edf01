"""The servers: how to start each, send requests, and read answers."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.serving.model import CLASSES, Prepared
from bundle.images import encode_png

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path(__file__).parent / "peers"
CANDOR = "Candor"
_PATIENCE_S = 120.0
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

Images = npt.NDArray[np.uint8]
Reader = Callable[[bytes, Mapping[str, str]], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Request:
    """A request body with headers."""

    path: str
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Payload:
    """A format of images for a server.

    Attributes:
        write: Makes a request from images.
        read: Reads an answer, (N, 10): probabilities if `calibrated`, else logits.
        calibrated: Whether answers are probabilities.
    """

    write: Callable[[Images], Request]
    read: Reader
    calibrated: bool = False


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
    """A running server."""

    name: str
    port: int
    payloads: Mapping[str, Payload]
    pid: int

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
            if len(rows) > 1 and payload == "PNG":
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
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    folder = scratch / f"{name}-{port}"
    folder.mkdir(parents=True)
    log = folder / "log"
    variables = {key: value for key, value in os.environ.items() if not key.startswith("CANDOR_")}
    variables |= {**_ONE_THREAD, **server.environment, **environment, "MODEL": str(prepared.onnx)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            server.command(python, prepared, port, folder),
            env=variables,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=PEERS if server.install else ROOT,
            start_new_session=True,
        )
    try:
        _wait(f"http://127.0.0.1:{port}{server.ready}", process, log)
        yield Running(name, port, server.payloads, process.pid)
    finally:
        _stop(process)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"{url} does not answer: {log.read_text(errors='replace')[-1500:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a server with its process group."""
    for signal_number in (15, 9):
        try:
            os.killpg(process.pid, signal_number)
        except ProcessLookupError:
            break
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
    process.wait(10)


_JSON = {"content-type": "application/json"}


def _npy(path: str) -> Callable[[Images], Request]:
    def write(images: Images) -> Request:
        file = io.BytesIO()
        np.save(file, images)
        return Request(path, file.getvalue(), {"content-type": "application/x-npy"})

    return write


def _png(path: str) -> Callable[[Images], Request]:
    return lambda images: Request(path, encode_png(images[0]), {"content-type": "image/png"})


def _plain_json(path: str, key: str) -> Callable[[Images], Request]:
    return lambda images: Request(path, _dumps({key: images.tolist()}), _JSON)


def _v2_json(path: str) -> Callable[[Images], Request]:
    def write(images: Images) -> Request:
        return Request(path, _dumps({"inputs": [_v2_input(images) | {"data": images.ravel().tolist()}]}), _JSON)

    return write


def _v2_binary(path: str) -> Callable[[Images], Request]:
    def write(images: Images) -> Request:
        tensor = _v2_input(images) | {"parameters": {"binary_data_size": images.nbytes}}
        header = _dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})
        lengths = {
            "content-type": "application/octet-stream",
            "inference-header-content-length": str(len(header)),
        }
        return Request(path, header + images.tobytes(), lengths)

    return write


def _v2_input(images: Images) -> dict[str, Any]:
    return {"name": "input", "shape": list(images.shape), "datatype": "UINT8"}


def _dumps(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _read_ours(body: bytes, _: Mapping[str, str]) -> npt.NDArray[np.float32]:
    rows = json.loads(body)["predictions"]
    return np.array([[row["probabilities"][str(label)] for label in range(CLASSES)] for row in rows], np.float32)


def _read_v2(body: bytes, headers: Mapping[str, str]) -> npt.NDArray[np.float32]:
    length = int(headers.get("inference-header-content-length", len(body)))
    rest = memoryview(body)[length:]
    for output in json.loads(body[:length])["outputs"]:
        size = (output.get("parameters") or {}).get("binary_data_size", 0)
        if output["name"] == "logits":
            values = np.frombuffer(rest[:size], np.float32) if size else np.array(output["data"], np.float32)
            return values.reshape(output["shape"])
        rest = rest[size:]
    raise ValueError(f"no logits in {body[:length]!r}")


def _read_list(body: bytes, _: Mapping[str, str]) -> npt.NDArray[np.float32]:
    return np.array(json.loads(body), np.float32)


def _read_logits(body: bytes, _: Mapping[str, str]) -> npt.NDArray[np.float32]:
    return np.array(json.loads(body)["logits"], np.float32)


def _read_floats(body: bytes, _: Mapping[str, str]) -> npt.NDArray[np.float32]:
    return np.frombuffer(body, np.float32).reshape(-1, CLASSES)


def _candor(_: Path, prepared: Prepared, port: int, folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "service.cli", "serve", "--port", str(port)),
        *("--bundles", str(prepared.bundles), "--policies", str(prepared.policies)),
        *("--database-url", f"sqlite:///{folder}/state.db"),
    ]


def _mlserver(python: Path, prepared: Prepared, port: int, folder: Path) -> list[str]:
    settings = {
        "http_port": port,
        "grpc_port": _free_port(),
        "metrics_port": _free_port(),
        "parallel_workers": 0,
        "debug": False,
    }
    model = {
        "name": "model",
        "implementation": "mlserver_model.Onnx",
        "parameters": {"uri": str(prepared.onnx)},
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "model-settings.json").write_text(json.dumps(model), encoding="utf-8")
    return [str(python.with_name("mlserver")), "start", str(folder)]


def _kserve(python: Path, prepared: Prepared, port: int, _: Path) -> list[str]:
    return [str(python), "kserve_model.py", str(prepared.onnx), "--http_port", str(port)]


def _bentoml(python: Path, _: Prepared, port: int, __: Path) -> list[str]:
    command = [str(python.with_name("bentoml")), "serve", "bentoml_model:Onnx"]
    return [*command, "--host", "127.0.0.1", "--port", str(port)]


def _litserve(python: Path, prepared: Prepared, port: int, _: Path) -> list[str]:
    return [str(python), "litserve_model.py", str(prepared.onnx), str(port)]


def _ray(python: Path, prepared: Prepared, port: int, _: Path) -> list[str]:
    return [str(python), "ray_model.py", str(prepared.onnx), str(port)]


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _ours(model: str) -> dict[str, Payload]:
    predict, infer = f"/v1/models/{model}/predict", f"/v2/models/{model}/infer"
    return {
        "npy": Payload(_npy(predict), _read_ours, calibrated=True),
        "V2 binary": Payload(_v2_binary(infer), _read_v2),
        "V2 JSON": Payload(_v2_json(infer), _read_v2),
        "JSON": Payload(_plain_json(predict, "inputs"), _read_ours, calibrated=True),
        "PNG": Payload(_png(predict), _read_ours, calibrated=True),
    }


def candor(model: str) -> Server:
    """Return our service with one of its models."""
    return Server(_candor, _ours(model), "/readyz", environment={"CANDOR_THREADS": "1"})


_V2 = "/v2/models/model/infer"
PEER_SERVERS: dict[str, Server] = {
    "MLServer": Server(
        _mlserver,
        {"V2 JSON": Payload(_v2_json(_V2), _read_v2)},
        "/v2/models/model/ready",
        ("mlserver==1.7.1", "onnxruntime"),
        {"PYTHONPATH": str(PEERS)},
    ),
    "KServe": Server(
        _kserve,
        {"V2 JSON": Payload(_v2_json(_V2), _read_v2), "V2 binary": Payload(_v2_binary(_V2), _read_v2)},
        "/v2/health/live",
        ("kserve==0.21.0", "onnxruntime"),
    ),
    "BentoML": Server(
        _bentoml,
        {"JSON": Payload(_plain_json("/predict", "inputs"), _read_list)},
        "/readyz",
        ("bentoml==1.4.39", "onnxruntime"),
        {"BENTOML_DO_NOT_TRACK": "True"},
    ),
    "LitServe": Server(
        _litserve,
        {"JSON": Payload(_plain_json("/predict", "inputs"), _read_logits)},
        "/health",
        ("litserve==0.2.19", "onnxruntime"),
    ),
    "Ray Serve": Server(
        _ray,
        {"npy": Payload(_npy("/predict"), _read_floats)},
        "/predict",
        ("ray[serve]==2.60.0", "onnxruntime"),
        {"RAY_USAGE_STATS_ENABLED": "0"},
    ),
}
