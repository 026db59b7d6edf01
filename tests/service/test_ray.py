"""`candor.ray.app` beside `candor serve`, and `candor score --ray` beside `candor score`, on a real Ray cluster."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import yaml

from tests.conftest import ROOT, Digits
from tests.ports import free_port
from tests.ray_cluster import BIN, PATIENT, SETTINGS
from tests.waiting import PATIENCE_S, until

from .conftest import POLICIES, Caller, Spawn
from .payments import folders_of, payments, written
from .rest.test_direct import REQUESTS

OTHERS = {
    "another model": ("POST", "/v1/models/payments/predict", b'{"inputs": [[1, 2], [300, 1]]}'),
    "ready": ("GET", "/v2/health/ready", b""),
    "metadata": ("GET", "/v2/models/digits", b""),
    "revisions": ("GET", "/v1/models/payments/revisions", b""),
    "feedback": ("POST", "/v1/models/digits/feedback", b'{"items": [{"label": "1"}]}'),
    "no such path": ("GET", "/v1/nothing", b""),
    "no such method": ("GET", "/v1/models/digits/predict", b""),
    "too large": ("POST", "/v1/models/digits/predict", bytes(9 << 20)),
    "too large an upload": ("POST", "/v1/models/digits/labelled-sets", bytes(9 << 20)),
}
_VARYING = re.compile(rb"[0-7][0-9A-HJKMNP-TV-Z]{25}|\"stale_for_s\":[0-9.]+|[0-9-]{10}T[0-9:.]+Z")


@dataclass
class OnRay:
    """The service on Ray.

    Attributes:
        caller: Speaks to it.
        address: Address of the cluster.
        process: What holds both.
    """

    caller: Caller
    address: str
    process: subprocess.Popen[str]
    environment: dict[str, str]

    def replicas(self) -> dict[str, int]:
        """The replicas of the model digits by their state."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said = next(line for line in self.process.stdout if line.startswith("replicas"))
        found: dict[str, int] = json.loads(said.removeprefix("replicas"))
        return found


@pytest.fixture(scope="module")
def environment(digits: Digits, tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> dict[str, str]:
    """Two models, and a state that both services share."""
    if not (BIN.parent / ".made").exists():
        pytest.skip("Ray is not installed: make ray")
    folders = folders_of(digits, tmp_path_factory)
    for folder in folders["bundles"].iterdir():
        if folder.name not in ("digits", "payments"):
            shutil.rmtree(folder)
    shutil.copytree(POLICIES / "digits", folders["policies"] / "digits")
    settings = {name: str(path) for name, path in folders.items()} | {
        "database_url": postgres_url,
        "default_model": "digits",
        "host": "127.0.0.1",
        "poll_interval_s": "30",  # an activation must reach the replicas without
        "refit_cpu": "low",
        "deadline_s": f"{PATIENCE_S}",
        "uploads": str(tmp_path_factory.mktemp("uploads")),
    }
    return {f"CANDOR_{name.upper()}": value for name, value in settings.items()}


@pytest.fixture(scope="module")
def on_ray(environment: dict[str, str]) -> Iterator[OnRay]:
    port = free_port()
    folder = tempfile.mkdtemp(prefix="ray")  # short enough for a socket
    known = {name: value for name, value in os.environ.items() if not name.startswith("CANDOR_")}
    known |= environment | SETTINGS
    command = [BIN / "python", Path(__file__).parent / "on_ray.py", str(port), folder, "quick"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started_with = known | PATIENT | {"RAY_TMPDIR": folder}
    process = subprocess.Popen(command, env=started_with, start_new_session=True, **pipes)
    try:
        assert process.stdout is not None
        said = next((line for line in process.stdout if line.startswith("serving")), "")
        assert said, "it did not start"
        yield OnRay(Caller(f"http://127.0.0.1:{port}"), said.split()[1], process, known)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)  # closes the pipes, too
        shutil.rmtree(folder, ignore_errors=True)


def answered(caller: Caller, method: str, path: str, body: bytes, headers: dict[str, str]) -> Any:
    """Return status, headers in order, and body, without what varies."""
    response = caller.http.request(method, path, content=body, headers={"x-request-id": "mine", **headers})
    varies = {"date", "server", "content-length"} if "content-encoding" in response.headers else {"date", "server"}
    kept = [(name.lower(), value) for name, value in response.headers.raw if name.lower().decode() not in varies]
    return response.status_code, sorted(kept), _VARYING.sub(b"", response.content)


def test_answers_are_those_of_candor_serve(on_ray: OnRay, environment: dict[str, str], module_spawn: Spawn) -> None:
    plain = module_spawn(**{name.removeprefix("CANDOR_").lower(): value for name, value in environment.items()})
    requests = {name: ("POST", asked.path, asked.body, asked) for name, asked in REQUESTS.items()}
    requests |= {name: (*asked, None) for name, asked in OTHERS.items()}  # type: ignore[dict-item]
    for name, (method, path, body, asked) in requests.items():
        headers = {"content-type": "application/json"}
        if asked is not None:
            more = dict(line.split(": ", 1) for line in asked.more.splitlines())
            headers = {"content-type": asked.content_type, "accept-encoding": "identity", **more}
        expected = answered(plain, method, path, body, headers)
        assert answered(on_ray.caller, method, path, body, headers) == expected, name


def test_an_activation_reaches_the_replicas_before_its_answer(on_ray: OnRay, digits: Digits) -> None:
    caller = on_ray.caller
    caller.teach(digits.dimmed, digits.labels)
    answer = caller.recalibrate(mode="propose", calibrator="temperature")  # a job of the one background deployment
    assert answer.status_code == 200, answer.text
    caller.activate(answer.json()["revision"])
    headers = [caller.http.post("/predict", json={"inputs": digits.images[:1].tolist()}).headers for _ in range(3)]
    assert {each["x-candor-revision"] for each in headers} == {answer.json()["revision"]}


def test_scores_on_ray_have_the_same_bytes(on_ray: OnRay, tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for number in range(3):
        written(tmp_path / "rows" / f"{number}.csv", payments(200 + number))

    def score(output: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [
            BIN / "candor",
            "score",
            "rows",
            output,
            "--model",
            "payments",
            "--policy",
            "triage",
            "--reference",
            "tx",
        ]
        command += ["--part-rows", "70", "--on-error", "skip", *more]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=on_ray.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    done = score("plain", "--processes", "1")
    assert done.returncode == 0, done.stderr
    # The same run, interrupted after one part: ids come from the manifest.
    before = json.loads((tmp_path / "plain" / "manifest.json").read_text())
    (tmp_path / "ray").mkdir()
    begun = before | {"finished": False, "parts": before["parts"][:1]}
    (tmp_path / "ray" / "manifest.json").write_text(json.dumps(begun))
    shutil.copy(tmp_path / "plain" / "part-00000.csv", tmp_path / "ray")
    done = score("ray", "--resume", "--ray", on_ray.address)
    assert done.returncode == 0, done.stderr
    files = {path.name: path.read_bytes() for path in (tmp_path / "plain").iterdir()}
    assert len(files) > 8
    assert {path.name: path.read_bytes() for path in (tmp_path / "ray").iterdir()} == files

    written(tmp_path / "rows" / "3.csv", [["1", "x"]], ["tx", "other"])
    refused = score("refused", "--ray", on_ray.address)
    assert refused.returncode == 2
    assert "3.csv has other columns than 0.csv" in refused.stderr


def test_a_replica_joins_under_load_and_its_stop_loses_nothing(
    on_ray: OnRay, digits: Digits, postgres_url: str
) -> None:
    """Requests go on meanwhile: none fails, and all predictions are in the state."""
    ids: list[str] = []
    many, few = threading.Event(), threading.Event()

    def ask(stopped: threading.Event) -> None:
        with httpx.Client(base_url=on_ray.caller.url, timeout=PATIENCE_S) as client:
            while not stopped.is_set():
                answer = client.post("/predict", json={"inputs": digits.images[:4].tolist()})
                assert answer.status_code == 200, answer.text
                ids.extend(row["prediction_id"] for row in answer.json()["predictions"])

    with ThreadPoolExecutor(12) as pool:
        asking = [pool.submit(ask, many) for _ in range(10)] + [pool.submit(ask, few) for _ in range(2)]
        try:
            until(lambda: on_ray.replicas().get("RUNNING") == 2, on_ray.replicas)
            many.set()
            until(lambda: on_ray.replicas() == {"RUNNING": 1}, on_ray.replicas)
        finally:
            many.set()
            few.set()
        for each in asking:
            each.result()

    def stored() -> int:
        with psycopg.connect(postgres_url) as connection:
            found = connection.execute("select count(*) from predictions where id = any(%s)", [ids]).fetchone()
        return int(found[0]) if found else 0

    until(lambda: stored() == len(ids), lambda: (stored(), len(ids)))


def test_a_stop_writes_the_log(on_ray: OnRay, digits: Digits, postgres_url: str) -> None:
    last = on_ray.caller.predict(digits.images[:200])[-1]["prediction_id"]
    on_ray.process.communicate(timeout=PATIENCE_S)  # ends its input
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute("select count(*) from predictions where id = %s", [last]).fetchone()
    assert found == (1,)
    with pytest.raises(httpx.TransportError):
        on_ray.caller.http.get("/livez")


def test_the_example_is_what_serve_build_writes(environment: dict[str, str], tmp_path: Path) -> None:
    known = os.environ | environment | {"PYTHONPATH": str(ROOT), "CANDOR_BUNDLES": str(ROOT / "examples" / "bundles")}
    command = [BIN / "serve", "build", "candor.ray:app", "--output-path", tmp_path / "built.yaml"]
    done = subprocess.run(command, env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    built = yaml.safe_load((tmp_path / "built.yaml").read_text())["applications"][0]["deployments"]
    assert yaml.safe_load((ROOT / "deploy/ray/candor.yaml").read_text())["applications"][0]["deployments"] == built
