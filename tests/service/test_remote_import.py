"""`candor import server`: a model that a service serves becomes a bundle of another one."""

from __future__ import annotations

import csv
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

import bundle as bundles
from importing.cli import app
from tests.waiting import PATIENCE_S

from . import imported_models
from .conftest import InThread


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    root = tmp_path_factory.mktemp("near") / "bundles"
    return root, imported_models.payments(root)


@pytest.fixture(scope="module")
def near(launch: Any, made: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InThread]:
    running = launch(tmp_path_factory.mktemp("state"), bundles=made[0], policies=None)
    yield running
    running.close()


@pytest.fixture(scope="module")
def rows(near: InThread, made: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows with labels drawn as the model says."""
    random = np.random.default_rng(2)
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    sent = made[1] * 4
    found = near.http.post("/v1/models/payments/predict", json={"inputs": sent}).json()["predictions"]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["country", "amount", "y"])
        for row, answer in zip(sent, found, strict=True):
            label = "fraud" if random.random() < answer["probabilities"]["fraud"] else "genuine"
            writer.writerow([row["country"], row["amount"], label])
    return path


@pytest.fixture
def imported(near: InThread, rows: Path, tmp_path: Path) -> Callable[..., tuple[str, Path]]:
    def run(*options: str, address: str = "/v2/models/payments") -> tuple[str, Path]:
        where = address if "://" in address else near.url + address
        arguments = ["server", where, "--name", "far", "--validation", str(rows), "--label", "y"]
        arguments += ["--labels", "genuine,fraud", "--out", str(tmp_path / "bundles"), *options]
        done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return re.sub(r"\s+", " ", done.output), tmp_path / "bundles" / "far" / "1"

    return run


@pytest.mark.parametrize("version", ["", "/versions/1"])
def test_one_command_makes_a_bundle_that_gives_what_the_server_gives(
    near: InThread, made: Any, imported: Any, start: Any, tmp_path: Path, version: str
) -> None:
    said, path = imported("--output", "logits", "--on-change", "alarm", address=f"/v2/models/payments{version}")
    assert "Imported" in said, said
    bundle = bundles.verify(path)
    upstream = bundle.upstream
    assert upstream is not None
    assert (upstream.version, upstream.by_version, upstream.binary) == ("1", bool(version), True)
    assert (upstream.on_change, bundle.manifest.source) == ("alarm", "remote")
    state = tmp_path / "far"
    state.mkdir()
    far = start(state=state, bundles=tmp_path / "bundles", policies=None)
    sent = made[1][:20]
    rows = far.http.post("/v1/models/far/predict", json={"inputs": sent})
    assert rows.status_code == 200, rows.text
    body = {
        "inputs": [
            {"name": "country", "datatype": "BYTES", "shape": [20, 1], "data": [row["country"] for row in sent]},
            {"name": "amount", "datatype": "FP64", "shape": [20, 1], "data": [row["amount"] for row in sent]},
        ],
        "outputs": [{"name": "logits"}],
    }
    logits = np.array(near.http.post("/v2/models/payments/infer", json=body).json()["outputs"][0]["data"]).reshape(
        -1, 2
    )
    wanted = bundle.calibrator.predict_proba(logits.astype(np.float32))
    found = [[*row["probabilities"].values()] for row in rows.json()["predictions"]]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_which_of_several_outputs_is_asked(imported: Any) -> None:
    said, path = imported()
    assert "everal outputs may score the classes" in said, said
    assert "--output logits" in said
    assert not path.exists()


@pytest.mark.parametrize(
    ("address", "options", "wanted"),
    [
        ("http://host/models/payments", (), "not the address of a model"),
        ("file:///v2/models/payments", (), "not the address of a model"),
        ("http://me:secret@host/v2/models/payments", (), "no user, password"),
        ("/v2/models/unknown", (), "status 404"),
        ("/v2/models/payments/versions/9", (), "status 404"),
        ("http://127.0.0.1:9/v2/models/payments", (), "Connection refused"),
        ("/v2/models/payments", ("--output", "scores"), "no output 'scores'"),
        (
            "/v2/models/payments",
            ("--header", "authorization=PATH"),
            "found: authorization expected: NAME=CANDOR_HEADER_",
        ),
        (
            "/v2/models/payments",
            ("--header", "authorization: Bearer geheim"),
            "environment variable that holds its value",
        ),
        ("http://me:geheim@127.0.0.1:9/v2/models/payments", (), "http://***@127.0.0.1:9"),
        ("http://me:geheim@127.0.0.1:9/payments", (), "http://***@127.0.0.1:9/payments"),
        ("/v2/models/payments", ("--header", "host=CANDOR_HEADER_X"), "belongs to the protocol"),
        ("/v2/models/payments", ("--header", "authorization=CANDOR_HEADER_X"), "CANDOR_HEADER_X is not set"),
    ],
)
def test_what_cannot_be_imported_is_said(imported: Any, address: str, options: tuple[str, ...], wanted: str) -> None:
    said, path = imported(*options, address=address)
    assert wanted.lower() in said.lower(), said
    assert "geheim" not in said
    assert not path.exists()


def test_a_slow_server_is_told_with_the_time_that_it_had(imported: Any, near: InThread) -> None:
    from .remote_models import Hostile

    hostile = Hostile(near.url)
    released = threading.Event()
    hostile.answer = lambda *_: released.wait()
    try:
        said, _ = imported("--timeout", "0.2", address=f"{hostile.url}/v2/models/payments")
    finally:
        released.set()
        hostile.close()
    assert "an answer within 0.2 s" in said, said
    assert "--timeout" in said


def test_a_redirect_is_not_followed(imported: Any, near: InThread) -> None:
    from .remote_models import Hostile, give

    hostile = Hostile(near.url)
    hostile.answer = lambda handler, _: give(handler, b"", 302, location=f"{near.url}/v2/models/payments/infer")
    try:
        said, path = imported("--output", "logits", address=f"{hostile.url}/v2/models/payments")
    finally:
        hostile.close()
    assert "status 302" in said, said
    assert not path.exists()
    assert httpx.get(f"{near.url}/livez", timeout=PATIENCE_S).status_code == 200
