"""Moving the pointer under load: no request is dropped, and none sees half of it."""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from sqlalchemy import update

import bundle as bundles
from calibrators import Identity, Temperature
from service.decisions.policy import parse_policy
from service.decisions.revision import Revision
from service.decisions.solved import SolvedPolicy
from service.errors import EpochStaleError, PolicyError, RevisionStateError
from service.inference.session import Session
from service.others import FOLLOW, Alone
from service.serving.models import Models
from service.settings import Settings
from service.state.database import Database, now_us
from service.state.pointers import Pointer
from service.state.revisions import RevisionStore
from service.state.tables import revisions
from tests.waiting import PATIENCE_S, until

from ..conftest import POLICIES, contents

MOVES = 10
CLIENTS = 4


def written_by_a_newer_version(models: Models, revision: Revision, **documents: Any) -> None:
    """Change what the database holds for a revision, as only another version of the service would write it."""
    with models._database.begin() as connection:
        connection.execute(update(revisions).where(revisions.c.number == int(revision.id[1:])).values(**documents))


def propose_temperature(store: RevisionStore, temperature: float) -> str:
    """Keep a revision like the first one with another calibrator."""
    first = store.get("digits", "r1")
    return store.propose(
        model="digits",
        bundle_id=first.bundle_id,
        bundle_version=first.bundle_version,
        model_digest=first.model_digest,
        calibrator=Temperature.from_dict(first.calibrator.to_dict() | {"temperature": temperature}),
        policies=first.policies,
        parent="r1",
        cause="recalibrate",
        by="test",
        gate="passed",
        created_at=now_us(),
        report={},
    ).id


def test_clients_see_no_error_and_no_half_of_a_revision(service: Any, digits: Any) -> None:
    store = service.runtime.revisions
    temperatures = {propose_temperature(store, 1 + n): 1.0 + n for n in range(3)}
    image = digits.dimmed[:1]
    logits = Session(digits.bundle, provider="cpu", threads=1).run(image)
    expected = {"r1": digits.bundle.calibrator.predict_proba(logits)[0]}
    for revision in temperatures:
        expected[revision] = store.get("digits", revision).calibrator.predict_proba(logits)[0]
    body = {"inputs": image.tolist()}
    stop = threading.Event()
    problems: list[str] = []
    seen: list[set[str]] = [set() for _ in range(CLIENTS)]
    counts = [0] * CLIENTS

    def ask(which: int) -> None:
        with httpx.Client(base_url=service.url, timeout=PATIENCE_S) as http:
            while not stop.is_set():
                response = http.post("/predict?policy=auto-read", json=body)
                if response.status_code != 200:
                    problems.append(response.text)
                    return
                answer = response.json()
                got = np.float32(list(answer["predictions"][0]["probabilities"].values()))
                if not np.allclose(got, expected[answer["revision"]], atol=1e-6):
                    problems.append(f"{answer['revision']} answered {got}")
                seen[which].add(answer["revision"])
                counts[which] += 1

    clients = [threading.Thread(target=ask, args=(which,)) for which in range(CLIENTS)]
    for client in clients:
        client.start()
    active, used = "r1", set()
    for move in range(MOVES):
        before = list(counts)
        others = [revision for revision in temperatures if revision != active]
        moved = service.rollback() if move % 3 == 2 else service.activate(others[move % 2], reason="test")
        active = moved["active"]
        used.add(active)
        # Whoever asks after the answer gets the new revision.
        assert service.http.post("/predict", json=body).json()["revision"] == moved["active"]
        while not problems and any(now == then for now, then in zip(counts, before, strict=True)):
            time.sleep(0.001)
    stop.set()
    for client in clients:
        client.join(PATIENCE_S)
    assert not problems
    assert set.union(*seen) >= used


class Crossing(Alone):
    """The other processes, one of which activates a revision too: before it follows, this process has to."""

    def __init__(self) -> None:
        super().__init__()
        self.follow: Callable[[], None] | None = None
        self.told: list[str] = []

    def tell(self, what: str) -> None:
        self.told.append(what)
        if self.follow is not None:
            with ThreadPoolExecutor(1) as pool:
                pool.submit(self.follow).result(PATIENCE_S)


def test_two_processes_that_activate_at_once_do_not_wait_for_each_other(digits: Any, tmp_path: Path) -> None:
    database, others = Database.open(f"sqlite:///{tmp_path}/state.db"), Crossing()
    models = Models(Settings(bundles=digits.root), database, lambda *_: None, others)
    models.start()
    store = RevisionStore(database)
    newer = store.get("digits", propose_temperature(store, 2.0))
    others.follow = models.follow
    with models.prepared("digits", newer):
        models.activate("digits", newer.id, expected_epoch=1, by="test")
        assert others.told == []
    assert others.told == [FOLLOW]
    with models.prepared("digits", newer):
        pass
    assert others.told == [FOLLOW], "nothing was activated"
    models.rollback("digits", expected_epoch=2, by="test")
    assert others.told == [FOLLOW, FOLLOW]
    models.close()
    database.close()


class Interrupted(RevisionStore):
    """A store whose reader falls asleep between reading the pointers and handing them on."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.meanwhile: Any = None

    def pointers(self) -> dict[str, Pointer]:
        found = super().pointers()
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return found


def test_a_slow_look_at_the_state_does_not_undo_an_activation(digits: Any, tmp_path: Any) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/state.db")
    models = Models(Settings(bundles=digits.root), database, lambda *_: None)
    models.start()
    store = Interrupted(database)
    models._store = store
    newer = propose_temperature(store, 2.0)
    epoch = models.get("digits").pointer.epoch
    store.meanwhile = lambda: models.activate("digits", newer, expected_epoch=epoch, by="test")
    models.follow()
    assert models.get("digits").served.revision.id == newer
    assert models.get("digits").pointer.active == newer
    models.close()
    database.close()


def open_models(digits: Any, url: str, **changes: Any) -> tuple[Database, Models]:
    database = Database.open(url)
    return database, Models(Settings(bundles=digits.root, **changes), database, lambda *_: None)


@pytest.fixture
def models(digits: Any, tmp_path: Any) -> Iterator[Models]:
    database, opened = open_models(digits, f"sqlite:///{tmp_path}/state.db", policies=POLICIES)
    opened.start()
    yield opened
    opened.close()
    database.close()


def test_activations_that_fail_leave_nothing_loaded(models: Models) -> None:
    model = models.get("digits")
    ids = [propose_temperature(models._store, 2.0 + n) for n in range(3)]
    for id_ in ids:
        with pytest.raises(EpochStaleError):
            models.activate("digits", id_, expected_epoch=7, by="test")
    assert set(model.loaded) == {"r1"}
    pointer = models.activate("digits", ids[0], expected_epoch=1, by="test")
    with pytest.raises(RevisionStateError, match="already active"):
        models.activate("digits", ids[0], expected_epoch=pointer.epoch, by="test")
    assert set(model.loaded) == {"r1", ids[0]}
    assert len(models._loader.opened) == 1


def test_a_first_revision_that_cannot_be_made_leaves_no_session(digits: Any, tmp_path: Any) -> None:
    folder = tmp_path / "policies" / "digits"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("id: mine\npositive: eleven\nbands: [{action: review}]\n")
    database, models = open_models(digits, f"sqlite:///{tmp_path}/state.db", policies=folder.parent)
    for attempt in (models.start, lambda: models.load("digits", by="test")):
        with pytest.raises(PolicyError):
            attempt()
        assert models._loader.opened == frozenset()
    models.close()
    database.close()


def test_the_first_solving_is_the_first_look_and_an_identical_policy_costs_none(models: Models) -> None:
    model = models.get("digits")

    def looks(policies: Mapping[str, SolvedPolicy]) -> dict[str, list[int]]:
        found = {key: [band.certificate for band in solved.bands] for key, solved in policies.items()}
        return {key: [one.looks for one in certificates if one] for key, certificates in found.items()}

    assert {look for found in looks(model.served.revision.policies).values() for look in found} == {1}
    wanted = model.served.policies["auto-read"].policy
    assert models.propose_policy("digits", wanted, by="ops").id == "r1"
    renamed = parse_policy(wanted.to_dict() | {"id": "another-name"})
    first = models.propose_policy("digits", renamed, by="ops")
    assert looks(first.policies)["another-name"] == [2]
    assert models.propose_policy("digits", renamed, by="ops").id == first.id
    stricter = parse_policy(renamed.to_dict() | {"certify": {"delta": 0.04}})
    second = models.propose_policy("digits", stricter, by="ops")
    assert looks(second.policies)["another-name"] == [3]
    assert second.policies["another-name"].version == 2
    models.activate("digits", second.id, expected_epoch=1, by="ops")
    again = models.propose_policy("digits", renamed, by="ops")  # the same calibrator: solved already
    assert (again.parent, again.policies["another-name"]) == (second.id, first.policies["another-name"])


class TestReplicas:
    def test_of_many_that_start_on_an_empty_state_one_makes_the_first_revision(
        self, postgresql_url: str, digits: Any
    ) -> None:
        url = postgresql_url.replace("postgresql://", "postgresql+psycopg://")
        opened = [open_models(digits, url, policies=POLICIES) for _ in range(3)]
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda one: one[1].start(), opened))
        store = RevisionStore(opened[0][0])
        assert [revision.id for revision in store.list("digits")] == ["r1"]
        assert store.pointers() == {"digits": Pointer("r1", None, 1)}
        for database, models in opened:
            assert models.get("digits").served.revision.id == "r1"
            models.close()
            database.close()

    def test_a_certificate_of_a_newer_version_is_a_problem_of_its_model_only(self, two: Any) -> None:
        one, other = two
        first = one._store.get("digits", "r1")
        certificate = {"metric": "precision", "window": None, "invented_later": 1}
        band = {"action": "accept", "threshold": None, "certificate": certificate}
        policy = {"id": "x", "bands": [{"action": "accept"}]}
        solved = {"policy": policy, "version": 1, "bands": [band], "review_all": False}
        fields = {name: getattr(first, name) for name in ("bundle_id", "bundle_version", "model_digest", "calibrator")}
        newer = one._store.propose(
            **fields, model="digits", policies={}, parent="r1", cause="policy", by="newer", gate="not_run"
        )
        written_by_a_newer_version(one, newer, policies={"x": solved})
        with pytest.raises(RevisionStateError, match="invented_later"):
            one.activate("digits", newer.id, expected_epoch=1, by="test")
        pointer = one._store.activate("digits", newer.id, expected_epoch=1, by="newer replica")
        other.follow()
        assert other.get("digits").served.revision.id == "r1"
        assert "invented_later" in other.problems()["digits"]
        one._store.rollback("digits", expected_epoch=pointer.epoch, by="test")
        other.follow()
        assert other.problems() == {}

    @pytest.fixture
    def two(self, postgresql_url: str, digits: Any) -> Any:
        url = postgresql_url.replace("postgresql://", "postgresql+psycopg://")
        databases = [Database.open(url) for _ in range(2)]
        both = [Models(Settings(bundles=digits.root), database, lambda *_: None) for database in databases]
        for models in both:
            models.start()
        yield both
        for models, database in zip(both, databases, strict=True):
            models.close()
            database.close()

    def test_they_agree_through_the_pointer(self, two: Any) -> None:
        one, other = two
        assert other.get("digits").served.revision.id == "r1"
        newer = propose_temperature(one._store, 2.0)
        pointer = one.activate("digits", newer, expected_epoch=one.get("digits").pointer.epoch, by="test")
        assert other.get("digits").served.revision.id == "r1"
        other.follow()
        assert other.get("digits").served.revision.id == newer
        other.rollback("digits", expected_epoch=pointer.epoch, by="test")
        one.follow()
        assert one.get("digits").served.revision.id == "r1"

    def test_one_that_lacks_the_bundle_keeps_its_revision_and_is_not_ready(self, two: Any, tmp_path: Any) -> None:
        one, other = two
        first = one._store.get("digits", "r1")
        fields = {name: getattr(first, name) for name in ("model", "model_digest", "calibrator", "policies")}
        missing = one._store.propose(
            **fields, bundle_id="0" * 64, bundle_version=99, parent="r1", cause="bundle", by="test", gate="not_run"
        )
        pointer = one._store.activate("digits", missing.id, expected_epoch=1, by="another replica")
        other.follow()
        assert other.get("digits").served.revision.id == "r1"
        assert "99" in other.problems()["digits"]
        one._store.rollback("digits", expected_epoch=pointer.epoch, by="another replica")
        other.follow()
        assert other.problems() == {}

    def test_what_cannot_be_loaded_is_not_tried_at_every_poll_but_as_soon_as_its_folder_changes(
        self, postgresql_url: str, digits: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root = Path(shutil.copytree(digits.root, tmp_path / "bundles"))
        database = Database.open(postgresql_url)
        models = Models(Settings(bundles=root, poll_interval_s=1_000), database, lambda *_: None)
        models.start()
        tried: list[str] = []
        serve = models._loader.serve
        monkeypatch.setattr(models._loader, "serve", lambda revision: (tried.append(revision.id), serve(revision))[1])
        first = models._store.get("digits", "r1")
        newer = bundles.verify(bundles.write(root, contents(digits.bundle)))
        moved = newer.path.rename(tmp_path / "elsewhere")
        fields = {name: getattr(first, name) for name in ("model", "model_digest", "calibrator", "policies")}
        revision = models._store.propose(
            **fields, bundle_id=newer.id, bundle_version=2, parent="r1", cause="bundle", by="test", gate="not_run"
        )
        models._store.activate("digits", revision.id, expected_epoch=1, by="another replica")
        for _ in range(9):
            models.follow()
        assert len(tried) == 2  # before the first failure nothing was known of the folder
        assert "digits" in models.problems()
        moved.rename(root / "digits" / "2")
        models.follow()
        assert models.problems() == {}
        assert models.get("digits").served.revision.id == revision.id
        models.close()
        database.close()

    @pytest.mark.parametrize("calibrator", [{"method": "magic"}, {"method": "temperature", "version": 99}, {}])
    def test_one_that_cannot_read_a_calibrator_keeps_its_revision_and_is_not_ready(
        self, two: Any, calibrator: dict[str, Any]
    ) -> None:
        """As a replica of an older version would in the middle of an update."""
        one, other = two
        first = one._store.get("digits", "r1")
        fields = {name: getattr(first, name) for name in ("model", "bundle_id", "bundle_version", "model_digest")}
        newer = one._store.propose(
            **fields, calibrator=Identity(), policies={}, parent="r1", cause="recalibrate", by="newer", gate="passed"
        )
        written_by_a_newer_version(one, newer, calibrator=calibrator)
        with pytest.raises(RevisionStateError, match="cannot be read"):
            one.activate("digits", newer.id, expected_epoch=1, by="test")
        assert one._store.pointer("digits").active == "r1"
        one._store.activate("digits", newer.id, expected_epoch=1, by="newer replica")
        other.follow()
        assert other.get("digits").served.revision.id == "r1"
        assert "cannot be read" in other.problems()["digits"]


class TestDisconnect:
    def test_a_client_that_goes_takes_its_queued_work_along(self, service: Any, hold: Any, digits: Any) -> None:
        """The worker is held up, a client asks and leaves; when the worker goes on, nothing of it is run."""
        held = hold(service.runtime.models.get("digits").plane)
        images = digits.images
        answers: list[int] = []
        first = threading.Thread(target=lambda: answers.append(len(service.predict(images[:1]))))
        first.start()
        held.wait_until_busy()

        body = httpx.Request("POST", "http://x/predict", json={"inputs": images[:7].tolist()}).content
        leaver = socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])))
        leaver.sendall(b"POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        held.wait_for_rows(7)
        leaver.close()
        until(lambda: service.metric("candor_http_requests_total", status="499") == 1)
        held.go.set()
        first.join(PATIENCE_S)
        assert len(service.predict(images[:2])) == 2
        assert answers == [1]
        assert held.runs == [[1], [2]]

    def test_half_a_body_is_no_request(self, service: Any) -> None:
        leaver = socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])))
        leaver.sendall(b"POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n{")
        leaver.close()
        until(lambda: service.metric("candor_http_requests_total", status="499") == 1)
        assert service.http.get("/livez").status_code == 200


def test_a_full_queue_answers_503_and_an_overdue_request_504(start: Any, hold: Any, digits: Any) -> None:
    service = start(max_queued_rows=4, deadline_s=1e-9)
    late = service.http.post("/predict", json={"inputs": digits.images[:1].tolist()})
    assert (late.status_code, late.json()["type"]) == (504, "/errors/deadline-exceeded")
    plane = service.runtime.models.get("digits").plane
    held = hold(plane)
    # Straight into the queue, with time enough, so that the worker is busy and the queue is full.
    loop = asyncio.new_event_loop()
    running = threading.Thread(target=loop.run_forever)
    running.start()
    asks = [plane.predict(plane.served, digits.images[:rows], deadline_s=60) for rows in (1, 4)]
    patient = [asyncio.run_coroutine_threadsafe(asks[0], loop)]
    held.wait_until_busy()
    patient.append(asyncio.run_coroutine_threadsafe(asks[1], loop))
    held.wait_for_rows(4)
    full = service.http.post("/predict", json={"inputs": digits.images[:1].tolist()})
    assert (full.status_code, full.json()["type"]) == (503, "/errors/overloaded")
    assert full.headers["retry-after"] == "1"
    # Nor is a body waited for that would be of no use.
    with socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2]))) as asker:
        asker.settimeout(PATIENCE_S)
        asker.sendall(b"POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n")
        assert asker.recv(100).startswith(b"HTTP/1.1 503 ")
    assert plane.statistics["r1"].failure.count == 3
    held.go.set()
    assert [len(answer.result(PATIENCE_S).ids) for answer in patient] == [1, 4]
    loop.call_soon_threadsafe(loop.stop)
    running.join(PATIENCE_S)
    loop.close()
