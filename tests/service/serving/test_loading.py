"""Several models at once; loading, unloading and replacing them while others, or the same, are asked."""

from __future__ import annotations

import gc
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import bundle as bundles
from calibrators import Temperature
from service.errors import NotReadyError
from service.inference.runtimes import open_runtime
from service.inference.session import Session
from service.serving.models import Models
from service.settings import Settings
from service.state import audit
from service.state.database import Database
from tests.waiting import PATIENCE_S

from ..conftest import contents

CLIENTS = 4
SWAPS = 10
CYCLES = 100


@pytest.fixture
def root(digits: Any, tmp_path: Path) -> Path:
    """A folder with two models, digits and letters."""
    root = Path(shutil.copytree(digits.root, tmp_path / "bundles"))
    bundles.write(root, contents(digits.bundle, model="letters"))
    return root


@dataclass
class Load:
    """Clients that ask until they are told to stop, and check every answer."""

    url: str
    path: str
    image: Any
    expected: dict[str, Any]
    problems: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    counts: list[int] = field(default_factory=lambda: [0] * CLIENTS)
    stop: threading.Event = field(default_factory=threading.Event)

    def ask(self, which: int) -> None:
        with httpx.Client(base_url=self.url, timeout=PATIENCE_S) as http:
            while not self.stop.is_set():
                response = http.post(self.path, json={"inputs": self.image.tolist()})
                if response.status_code != 200:
                    self.problems.append(response.text)
                    return
                answer = response.json()
                got = np.float32(list(answer["predictions"][0]["probabilities"].values()))
                if not np.allclose(got, self.expected[answer["revision"]], atol=1e-6):
                    self.problems.append(f"{answer['revision']} answered {got}")
                self.seen.add(answer["revision"])
                self.counts[which] += 1

    def everybody_again(self) -> None:
        """Return when every client has had another answer."""
        before = list(self.counts)
        while not self.problems and any(now == then for now, then in zip(self.counts, before, strict=True)):
            time.sleep(0.001)


@contextmanager
def under_load(service: Any, path: str, image: Any, expected: dict[str, Any]) -> Iterator[Load]:
    load = Load(service.url, path, image, expected)
    clients = [threading.Thread(target=load.ask, args=(which,)) for which in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        yield load
    finally:
        load.stop.set()
        for client in clients:
            client.join(PATIENCE_S)


@pytest.mark.usefixtures("proofs_here")
def test_ten_bundles_replace_each_other_under_load(start: Any, root: Path, digits: Any) -> None:
    """Each brings its own session; each answer is that of the revision that it names."""
    service = start(bundles=root, default_model="digits")
    image = digits.dimmed[:1]
    logits = Session(digits.bundle, provider="cpu", threads=1).run(image)
    expected = {"r1": digits.bundle.calibrator.predict_proba(logits)[0]}
    with under_load(service, "/predict", image, expected) as load:
        for swap in range(SWAPS):
            calibrator = Temperature.from_dict(digits.bundle.calibrator.to_dict() | {"temperature": 1.0 + swap})
            changed = digits.bundle.model_bytes + b"\x32\x02" + f"{swap:02}".encode()  # ONNX's doc_string
            bundles.write(root, contents(digits.bundle, model_bytes=changed, calibrator=calibrator))
            answer = service.http.post("/v1/models/digits/load")
            assert (answer.status_code, answer.json()["refused"]) == (200, {})
            newest = service.revisions()["items"][0]
            assert (newest["state"], newest["bundle"]) == ("proposed", swap + 2)
            expected[newest["id"]] = calibrator.predict_proba(logits)[0]
            service.activate(newest["id"])
            load.everybody_again()
    assert load.problems == []
    assert load.seen == set(expected)
    # The one in service and the one before.
    assert len(service.runtime.models._loader.opened) == 3  # and that of the other model


def test_unloading_and_loading_one_model_disturbs_no_other(start: Any, root: Path, digits: Any) -> None:
    service = start(bundles=root)
    image = digits.dimmed[:1]
    logits = Session(digits.bundle, provider="cpu", threads=1).run(image)
    expected = {"r1": digits.bundle.calibrator.predict_proba(logits)[0]}
    with under_load(service, "/v1/models/digits/predict", image, expected) as load:
        for _ in range(SWAPS):
            unloaded = service.http.post("/v1/models/letters/unload").json()
            assert (unloaded["loaded"], unloaded["revision"]) == (False, None)
            refused = service.http.post("/v1/models/letters/predict", json={"inputs": image.tolist()})
            assert (refused.status_code, refused.json()["type"]) == (503, "/errors/not-ready")
            assert "/v1/models/letters/load" in refused.json()["remedy"]
            assert service.http.get("/readyz").status_code == 200
            loaded = service.http.post("/v1/models/letters/load").json()
            assert (loaded["loaded"], loaded["revision"], loaded["problem"]) == (True, "r1", None)
            assert service.http.post("/v1/models/letters/predict", json={"inputs": image.tolist()}).status_code == 200
            load.everybody_again()
    assert load.problems == []


def test_what_a_model_has_taken_on_is_answered_though_it_is_unloaded(
    start: Any, hold: Any, root: Path, digits: Any
) -> None:
    service = start(bundles=root)
    held = hold(service.runtime.models.get("digits").plane)
    statuses: list[int] = []

    def ask() -> None:
        body = {"inputs": digits.images[:2].tolist()}
        statuses.append(
            httpx.post(f"{service.url}/v1/models/digits/predict", json=body, timeout=PATIENCE_S).status_code
        )

    asking = [threading.Thread(target=ask) for _ in range(3)]
    asking[0].start()
    held.wait_until_busy()  # with the first alone: the others must find it at work
    for thread in asking[1:]:
        thread.start()
    held.wait_for_rows(4)
    assert service.http.post("/v1/models/digits/unload").status_code == 200
    held.go.set()
    for thread in asking:
        thread.join(PATIENCE_S)
    assert statuses == [200] * 3


def test_what_should_be_loaded_outlives_a_restart_and_is_written_down(
    start: Any, root: Path, digits: Any, tmp_path: Path
) -> None:
    first = start(bundles=root)
    assert first.http.post("/v1/models/letters/unload").status_code == 200
    entries = [(entry.action, entry.model, entry.by) for entry in audit.read(first.runtime.database)]
    assert ("unload", "letters", "local") in entries
    first.close()
    second = start(bundles=root)
    assert second.http.get("/readyz").json()["models"] == {"digits": "r1", "letters": None}
    listed = {item["model"]: item["loaded"] for item in second.http.get("/v1/models").json()["items"]}
    assert listed == {"digits": True, "letters": False}
    assert second.http.post("/v1/models/letters/load").json()["revision"] == "r1"


def test_an_unloaded_model_takes_no_activation(start: Any, root: Path, digits: Any) -> None:
    service = start(bundles=root, default_model="digits")
    service.activate(service.propose_policy())
    epoch = service.revisions()["epoch"]
    service.http.post("/v1/models/digits/unload")
    refused = service.move("rollback", epoch)
    assert (refused.status_code, refused.json()["type"]) == (409, "/errors/revision-state")
    assert "/v1/models/digits/load" in refused.json()["remedy"]
    service.http.post("/v1/models/digits/load")
    assert service.rollback()["active"] == "r1"


def test_a_model_whose_folder_comes_later_is_loaded_by_name(start: Any, root: Path, digits: Any) -> None:
    service = start(bundles=root)
    unknown = service.http.post("/v1/models/new/load")
    assert (unknown.status_code, unknown.json()["expected"]) == (404, ["digits", "letters"])
    bundles.write(root, contents(digits.bundle, model="new"))
    assert service.http.post("/v1/models/new/load").json()["revision"] == "r1"
    body = {"inputs": digits.images[:1].tolist()}
    assert service.http.post("/v1/models/new/predict", json=body).json()["model"] == "new"


def test_a_bad_bundle_is_refused_and_the_good_one_stays(start: Any, root: Path, digits: Any) -> None:
    service = start(bundles=root, default_model="digits")
    before = service.predict(digits.images[:3])
    bad = bundles.write(root, contents(digits.bundle))
    data = bytearray((bad / "model.onnx").read_bytes())
    data[len(data) // 2] ^= 1
    (bad / "model.onnx").write_bytes(data)
    answer = service.http.post("/v1/models/digits/load").json()
    assert list(answer["refused"]) == ["2"]
    assert "model.onnx" in answer["refused"]["2"]
    shutil.copytree(bad, root / "worse" / "1")
    refused = service.http.post("/v1/models/worse/load")
    assert (refused.status_code, refused.json()["type"]) == (409, "/errors/bundle-refused")
    assert {item["model"] for item in service.http.get("/v1/models").json()["items"]} == {"digits", "letters"}
    after = service.predict(digits.images[:3])
    assert [row["probabilities"] for row in after] == [row["probabilities"] for row in before]


def test_a_model_by_the_name_of_a_path_is_refused_and_the_others_are_served(
    start: Any, root: Path, digits: Any
) -> None:
    """/v2/models/stats is the statistics of all models."""
    bundles.write(root, contents(digits.bundle, model="stats"))
    service = start(bundles=root)
    problems = service.http.get("/readyz").json()["problems"]
    assert list(problems) == ["stats"]
    assert "the model name 'stats' is reserved" in problems["stats"]
    refused = service.http.post("/v1/models/stats/load")
    assert (refused.status_code, refused.json()["type"]) == (409, "/errors/bundle-refused")
    assert (refused.json()["found"], "--name" in refused.json()["remedy"]) == ("stats", True)
    answered = service.http.get("/v2/models/stats").json()["model_stats"]
    assert [entry["name"] for entry in answered] == ["digits", "letters"]


def test_a_bundle_that_is_opened_while_others_are_let_go_stays_open(
    start: Any, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = start(bundles=root).runtime.models
    loader, revision = models._loader, models.get("digits").served.revision

    def meanwhile(*given: Any, **options: Any) -> Any:
        loader.keep_only(())  # as an activation of another model ends, which does not know of this bundle
        return open_runtime(*given, **options)

    loader.keep_only(())
    monkeypatch.setattr("service.serving.loading.open_runtime", meanwhile)
    loader.open(revision)
    assert loader.opened == {revision.bundle_id}


def test_loading_needs_an_administrator(spawn: Any) -> None:
    key = spawn.run("keys", "create", "--name", "ops", "--scope", "approve").stdout.strip()
    service = spawn()
    for verb in ("load", "unload"):
        refused = service.http.post(f"/v1/models/digits/{verb}", headers={"authorization": f"Bearer {key}"})
        assert (refused.status_code, refused.json()["expected"]) == (403, "admin")


class TestReplicas:
    @pytest.fixture
    def two(self, postgresql_url: str, root: Path) -> Iterator[list[Models]]:
        url = postgresql_url.replace("postgresql://", "postgresql+psycopg://")
        databases = [Database.open(url) for _ in range(2)]
        both = [Models(Settings(bundles=root), database, lambda *_: None) for database in databases]
        for models in both:
            models.start()
        yield both
        for models, database in zip(both, databases, strict=True):
            models.close()
            database.close()

    def test_every_replica_follows(self, two: list[Models], root: Path, digits: Any) -> None:
        one, other = two
        one.unload("letters", by="ops")
        other.follow()
        with pytest.raises(NotReadyError, match="unloaded"):
            other.get("letters").served  # noqa: B018
        assert len(other._loader.opened) == 1
        other.load("letters", by="ops")
        one.follow()
        assert one.get("letters").served.revision.id == "r1"
        bundles.write(root, contents(digits.bundle, model="new"))
        one.load("new", by="ops")
        other.follow()
        assert other.get("new").served.revision.id == "r1"

    def test_a_slow_look_at_the_state_does_not_undo_a_load(self, two: list[Models]) -> None:
        one, _ = two
        one.unload("letters", by="ops")
        read = one._desired.all

        def slow() -> Any:
            seen = read()
            one.load("letters", by="ops")
            return seen

        one._desired.all = slow  # type: ignore[method-assign]
        one.follow()
        assert one.get("letters").served.revision.id == "r1"


def resident_bytes() -> int:
    """Return the resident set of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux' /proc")
def test_memory_returns_after_unloading(root: Path, digits: Any, tmp_path: Path) -> None:
    """A hundred times in and out of a model of 4 MB: a bundle or a session kept each time would be hundreds of MB."""
    text = b" " * (4 << 20)
    padded = digits.bundle.model_bytes + b"\x32\x80\x80\x80\x02" + text  # ONNX's doc_string
    bundles.write(root, contents(digits.bundle, model="large", model_bytes=padded))
    database = Database.open(f"sqlite:///{tmp_path}/state.db")
    models = Models(Settings(bundles=root), database, lambda *_: None)
    models.start()
    settled = 0
    for cycle in range(CYCLES):
        models.unload("large", by="test")
        models.load("large", by="test")
        if cycle == CYCLES // 5:
            gc.collect()
            settled = resident_bytes()
    gc.collect()
    assert resident_bytes() - settled < 64 << 20  # other tests have run in this process
    models.close()
    database.close()
