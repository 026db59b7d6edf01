"""The SDK against a real service."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from bundle.images import encode_png
from candor import (
    ApiError,
    AsyncClient,
    Client,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    JobFailedError,
    JobTimeoutError,
    NotFoundError,
    UnauthenticatedError,
    UnavailableError,
    UnexpectedAnswerError,
    UnreachableError,
)
from candor.exchange import AsyncHttp, pause_s
from tests.ports import free_port
from tests.service import imported_models
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def client(service: Any) -> Iterator[Client]:
    with Client(service.url) as opened:
        yield opened


@pytest.fixture
def reader(shared: Any) -> Iterator[Client]:
    """A client of the service whose revisions stay as they are."""
    with Client(shared.url) as opened:
        yield opened


@pytest.mark.usefixtures("refits_here")
def test_the_main_job_in_python(client: Client, service: Any, digits: Any) -> None:
    assert client.ready()
    assert [model.model for model in client.models()] == ["digits"]
    items = []
    for start in range(0, 1000, 250):
        answer = client.predict(digits.dimmed[start : start + 250], policy="auto-read", top=1)
        labels = digits.labels[start : start + 250]
        items += [
            {"prediction_id": row.prediction_id, "label": label, "source": "reviewer"}
            for row, label in zip(answer.predictions, labels, strict=True)
        ]
    assert service.runtime.log.flush()
    receipt = client.feedback(items)
    assert (receipt.stored, {item.status for item in receipt.items}) == (1000, {"stored"})
    job = client.start_recalibration(mode="propose", since="2026-01-01T00:00:00Z")
    with pytest.raises(JobTimeoutError, match=job.job):
        client.wait(job.job, timeout_s=0)
    result = client.wait(job.job)
    assert (result.gate.passed, result.state) == (True, "proposed")
    assert client.job(job.job).state == "done"
    assert result.revision is not None
    epoch = client.revisions().epoch
    moved = client.activate(result.revision, epoch=epoch, reason="dim", accept_change=True)
    assert (moved.active, moved.previous, moved.epoch) == (result.revision, "r1", epoch + 1)
    assert client.revision(result.revision).state == "active"
    with pytest.raises(ConflictError) as stale:
        client.rollback(epoch=epoch)
    assert (stale.value.status, stale.value.kind) == (412, "epoch-stale")
    assert client.rollback(epoch=epoch + 1).active == "r1"
    assert [item.id for item in client.revisions(limit=1).items] == [result.revision]
    again = client.recalibrate(mode="dry_run")
    assert (again.gate.attempt, again.revision) == (2, None)


def test_policies_and_models(client: Client, digits: Any) -> None:
    solved = client.policy("auto-read")
    assert (solved.version, solved.policy["id"]) == (1, "auto-read")
    bands = [{"action": "accept", "when": {"min_probability": 0.75}}, {"action": "review"}]
    proposal = client.put_policy("strict", {"positive": "top", "bands": bands})
    assert proposal.state == "proposed"
    client.activate(proposal.id, epoch=client.revisions().epoch)
    answer = client.predict(digits.images[:20], policy="strict")
    assert answer.policy is not None
    assert answer.policy.id == "strict@1"
    for row in answer.predictions:
        assert row.decision is not None
        assert (row.decision.action == "accept") == (np.float32(row.confidence) >= np.float32(0.75))
    (model,) = client.models()
    assert (model.policies, model.labels) == (("auto-read", "flag-zero", "strict"), digits.bundle.manifest.labels)
    assert client.health().ready

    assert not client.unload("digits").loaded
    with pytest.raises(ApiError):
        client.predict(digits.images[:1])
    assert client.load("digits").revision == proposal.id
    assert client.predict(digits.images[:1]).revision == proposal.id


def test_inputs_of_every_form_give_the_same(reader: Client, digits: Any, tmp_path: Path) -> None:
    images = digits.images[:3]
    files = [tmp_path / f"{index}.png" for index in range(3)]
    for file, image in zip(files, images, strict=True):
        file.write_bytes(encode_png(image))
    np.save(tmp_path / "all.npy", images)
    (tmp_path / "all.json").write_text(json.dumps({"inputs": images.tolist()}))
    answers = [
        reader.predict(images),
        reader.predict(images.astype(np.int64)),
        reader.predict(images.tolist()),
        reader.predict(list(images)),
        reader.predict(images, references=["a", None, "c"]),
        reader.predict_images(files),
        reader.predict_images([file.read_bytes() for file in files], references=["a", "b", "c"]),
        reader.predict_file(tmp_path / "all.npy"),
        reader.predict_file(tmp_path / "all.json"),
    ]
    for answer in answers:
        found = [list(row.probabilities.values()) for row in answer.predictions]
        expected = [list(row.probabilities.values()) for row in answers[0].predictions]
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert [row.reference for row in answers[4].predictions] == ["a", None, "c"]
    assert [row.reference for row in answers[6].predictions] == ["a", "b", "c"]
    assert reader.predict(images, top=0).predictions[0].probabilities == {}


def test_answers_are_frozen_and_keep_the_whole_document(reader: Client, digits: Any) -> None:
    answer = reader.predict(digits.images[:1], policy="auto-read")
    with pytest.raises(ValidationError, match="frozen"):
        answer.revision = "r2"  # type: ignore[misc]
    assert answer.policy is not None
    certificate = answer.policy.certified["accept"]
    assert certificate.n == answer.document["policy"]["certified"]["accept"]["n"]


def test_an_id_that_is_another_path_is_refused_before_anything_is_sent() -> None:
    with Client("http://127.0.0.1:1", model="digits") as client:
        for call in (client.revision, client.reject, client.job, client.load, client.case):
            for name in ("", ".", "..", 7):
                with pytest.raises(ValueError, match=f"^{re.escape(repr(name))} is not a name or id"):
                    call(name, **({"reason": "odd"} if call == client.reject else {}))


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"url": "127.0.0.1:8000"}, "not a valid URL"), ({"retries": -1}, "retries is -1"), ({"api_key": "a b"}, "key")],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Client(**options)


def test_an_error_survives_a_pool_of_processes() -> None:
    error = UnavailableError(503, {"title": "Overloaded", "detail": "Too many."}, retry_after_s=2.5)
    error.add_note("on the third day")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.status, copy.problem) == (UnavailableError, "Too many.", 503, error.problem)
    assert copy.retry_after_s == 2.5


def test_both_clients_have_the_same_methods() -> None:
    def methods(kind: type) -> dict[str, inspect.Signature]:
        return {
            name: inspect.signature(method)
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(Client) == methods(AsyncClient)
    assert len(methods(Client)) > 15


def test_a_client_without_a_name_means_the_default_model(launch: Any, tmp_path: Path) -> None:
    imported_models.claims(tmp_path / "bundles")
    imported_models.vendor(tmp_path / "bundles")
    (tmp_path / "state").mkdir()
    running = launch(tmp_path / "state", bundles=tmp_path / "bundles", default_model="claims", policies=None)
    with Client(running.url) as client, Client(running.url, model="vendor") as other:
        assert client.monitoring().model == client.predict([{"age": 41}]).model == "claims"
        with pytest.raises(TypeError, match="no default"):
            client.predict_labels([{"age": 41}])
        assert other.monitoring().model == "vendor"
    running.close()
    running = launch(tmp_path / "state", bundles=tmp_path / "bundles", policies=None)
    with Client(running.url) as client, pytest.raises(NotFoundError, match="claims, vendor"):
        client.revisions()
    running.close()


def test_many_requests_of_one_event_loop(shared: Any, digits: Any) -> None:
    async def ask() -> list[Any]:
        async with AsyncClient(shared.url) as candor:
            assert await candor.ready()
            return await asyncio.gather(*(candor.predict(image[None]) for image in digits.images[:40]))

    together = [answer.predictions[0] for answer in asyncio.run(ask())]
    with Client(shared.url) as candor:
        batch = candor.predict(digits.images[:40]).predictions
    assert [row.label for row in together] == [row.label for row in batch]
    assert len({row.prediction_id for row in together}) == 40


def test_the_blocking_client_works_where_an_event_loop_runs(shared: Any, digits: Any) -> None:
    """As in a notebook."""

    async def cell() -> int:
        with Client(shared.url) as candor:
            return len(candor.predict(digits.images[:2]).predictions)

    assert asyncio.run(cell()) == 2


class TestErrors:
    def test_they_carry_the_problem(self, reader: Client) -> None:
        with pytest.raises(InvalidRequestError) as caught:
            reader.predict(np.zeros((1, 3, 3), np.uint8))
        error = caught.value
        assert (error.status, error.kind, error.where) == (422, "input-shape", "/inputs/0")
        assert (error.found, error.expected) == ([3, 3], [8, 8, 1])
        assert error.remedy == error.problem["remedy"]
        with pytest.raises(NotFoundError) as unknown:
            reader.revision("r99")
        assert unknown.value.kind == "unknown-revision"
        with pytest.raises(ValueError, match=r"image\.gif"):
            reader.predict_file("image.gif")
        with pytest.raises(TypeError, match="set"):
            reader.predict([{1, 2}])
        for call in (reader.predict, reader.predict_images):
            with pytest.raises(TypeError, match="list"):
                call("seven.png")

    @pytest.mark.usefixtures("refits_here")
    def test_too_few_labels(self, client: Client) -> None:
        with pytest.raises(InvalidRequestError, match="Too little labelled feedback"):
            client.recalibrate()
        with pytest.raises(InvalidRequestError, match="Unknown calibrator"):
            client.start_recalibration(calibrator="magic")

    @pytest.mark.usefixtures("refits_here")
    def test_predictions_that_wait_for_the_log_count(
        self, client: Client, service: Any, digits: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service.runtime.log, "_interval", 3600.0)
        rows = client.predict(digits.images[:400], policy="auto-read").predictions
        labels = zip(rows, digits.labels, strict=False)
        receipt = client.feedback([{"prediction_id": row.prediction_id, "label": label} for row, label in labels])
        assert receipt.pending == 400
        used = client.recalibrate(mode="dry_run").rows
        assert (used.fit + used.certify + used.gate, used.pending) == (400, 0)

    def test_a_job_that_fails(self, client: Client, service: Any, digits: Any) -> None:
        rows = client.predict(digits.images[:100]).predictions  # no policy decided: nobody sought these labels
        assert service.runtime.log.flush()
        labels = zip(rows, digits.labels, strict=False)
        client.feedback([{"prediction_id": row.prediction_id, "label": label} for row, label in labels])
        job = client.start_recalibration()
        with pytest.raises(JobFailedError, match="usable") as caught:
            client.wait(job.job)
        assert caught.value.found

    def test_an_idempotency_key_with_other_items(self, client: Client, digits: Any) -> None:
        item = {"reference": "a", "label": "7"}
        first = client.feedback([item], idempotency_key="k")
        assert client.feedback([item], idempotency_key="k") == first
        with pytest.raises(ConflictError):
            client.feedback([{**item, "label": "8"}], idempotency_key="k")

    def test_keys(self, service: Any, spawn: Any) -> None:
        state = service.runtime.settings.database_url
        made = spawn.run("keys", "create", "--name", "reader", "--scope", "predict", database_url=state)
        key = made.stdout.strip()
        until(lambda: service.http.get("/v1/models").status_code == 401)
        with Client(service.url) as stranger, pytest.raises(UnauthenticatedError):
            stranger.models()
        with Client(service.url, api_key=key) as known:
            assert len(known.models()) == 1
            with pytest.raises(ForbiddenError) as caught:
                known.feedback([{"reference": "a", "label": "7"}])
        assert caught.value.expected == "feedback"

    def test_no_key_and_no_url(self) -> None:
        with pytest.raises(ValueError, match="API key"):
            Client(api_key="two\nlines")
        with pytest.raises(ValueError, match="not a valid URL"):
            Client("http://[::1")

    def test_where_nobody_answers_it_says_so(self) -> None:
        port = free_port()
        with Client(f"http://127.0.0.1:{port}", retries=1) as client:
            assert not client.ready()
            with pytest.raises(UnreachableError, match=str(port)):
                client.rollback(epoch=1)

    def test_where_something_else_answers_it_says_so(self) -> None:
        answers = [(200, {}, b"<html>"), (200, {}, b"{}"), (500, {}, b"<html>")]
        with scripted(answers) as (url, _), Client(url, model="digits") as client:
            with pytest.raises(UnexpectedAnswerError, match=url):
                client.revisions()
            with pytest.raises(UnexpectedAnswerError, match=r"not a valid RevisionPage \(active: Field required\)"):
                client.revisions()
            with pytest.raises(ApiError, match="<html>"):
                client.revisions()


Answer = tuple[int, dict[str, str], bytes]
UNAVAILABLE = b'{"title": "Overloaded", "status": 503, "type": "/errors/overloaded"}'
MODELS = (200, {"content-type": "application/json"}, b'{"items": []}')


@contextmanager
def scripted(answers: list[Answer]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server that gives these answers in turn; yields its URL and the requests that it has seen."""
    seen: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def handle_request(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            status, headers, body = answers[len(seen)]
            seen.append((self.command, self.path))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = handle_request  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class NotingHttp(AsyncHttp):
    """Notes how long it would wait."""

    def __init__(self, pauses: list[float], **options: Any) -> None:
        super().__init__(**options)
        self._pauses = pauses

    async def sleep(self, seconds: float) -> None:
        self._pauses.append(seconds)


def pauses_of(url: str, call: Callable[[AsyncClient], Any], **options: Any) -> tuple[Any, list[float]]:
    """Make a call and return what came of it, and the pauses in between."""
    pauses: list[float] = []

    async def run() -> Any:
        async with AsyncClient(url, http=lambda **given: NotingHttp(pauses, **given), **options) as client:
            try:
                return await call(client)
            except ApiError as error:
                return error

    return asyncio.run(run()), pauses


class TestRetries:
    def test_pauses_double_are_drawn_at_random_and_have_a_bound(self) -> None:
        bounds = [pause_s(attempt, 0.0, 1.0) for attempt in range(10)]
        assert bounds[:4] == pytest.approx([0.1, 0.2, 0.4, 0.8])
        assert max(bounds) == 5.0
        with scripted([(503, {}, UNAVAILABLE)] * 10) as (url, seen):
            error, pauses = pauses_of(url, lambda client: client.models(), retries=9)
        assert isinstance(error, UnavailableError)
        assert error.kind == "overloaded"
        assert len(seen) == 10
        assert all(0 <= pause <= bound for pause, bound in zip(pauses, bounds, strict=False))
        assert len(set(pauses)) == 9

    def test_retry_after_is_waited_for(self) -> None:
        answers = [(503, {"retry-after": "7"}, UNAVAILABLE), (429, {"retry-after": "2"}, b"{}"), MODELS]
        with scripted(answers) as (url, seen):
            models, pauses = pauses_of(url, lambda client: client.models())
        assert (models, len(seen)) == ((), 3)
        assert 7 <= pauses[0] <= 7.1
        assert 2 <= pauses[1] <= 2.2

    def test_a_date_is_understood_too_and_a_very_late_one_is_not_waited_for(self) -> None:
        past, late = "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2115 07:28:00 GMT"
        answers = [(503, {"retry-after": past}, UNAVAILABLE), (503, {"retry-after": late}, UNAVAILABLE)]
        with scripted(answers) as (url, seen):
            error, pauses = pauses_of(url, lambda client: client.models())
        assert (len(seen), len(pauses)) == (2, 1)
        assert isinstance(error, UnavailableError)
        assert error.retry_after_s is not None
        assert error.retry_after_s > 10**6

    @pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500])
    def test_what_would_fail_again_is_not_repeated(self, status: int) -> None:
        with scripted([(status, {}, b"{}")]) as (url, seen):
            error, _ = pauses_of(url, lambda client: client.models())
        assert (error.status, len(seen)) == (status, 1)

    def test_what_moves_something_is_not_repeated_and_feedback_is(self) -> None:
        receipt = b'{"stored": 1, "pending": 0, "duplicates": 0, "conflicts": 0, "items": [{"status": "stored"}]}'
        with scripted([(503, {}, UNAVAILABLE), (503, {}, UNAVAILABLE), (200, {}, receipt)]) as (url, seen):
            error, pauses = pauses_of(url, lambda client: client.rollback(epoch=1), model="digits")
            assert isinstance(error, UnavailableError)
            assert (len(seen), pauses) == (1, [])
            item = {"reference": "a", "label": "7"}
            stored, pauses = pauses_of(url, lambda client: client.feedback([item]))
        assert (stored.stored, len(seen), len(pauses)) == (1, 3, 1)

    def test_a_full_queue_is_asked_again_until_there_is_room(self, start: Any, hold: Any, digits: Any) -> None:
        """A real refusal: one piece of work runs, one waits, and there is no room for a third."""
        service = start(max_queued_rows=1)
        held = hold(service.runtime.models.get("digits").plane)
        refused = threading.Event()

        class Waiting(AsyncHttp):
            async def sleep(self, seconds: float) -> None:
                assert seconds >= 1, "Retry-After"
                refused.set()
                held.go.set()

        def ask(image: np.ndarray) -> None:
            service.http.post("/predict", json={"inputs": image[None].tolist()}).raise_for_status()

        threads = [threading.Thread(target=ask, args=(image,)) for image in digits.images[:2]]
        threads[0].start()
        held.wait_until_busy()
        threads[1].start()
        held.wait_for_rows(1)

        async def third() -> Any:
            async with AsyncClient(service.url, http=Waiting, retries=50) as candor:
                return await candor.predict(digits.images[:1])

        assert len(asyncio.run(third()).predictions) == 1
        assert refused.is_set()
        for thread in threads:
            thread.join(PATIENCE_S)


def test_what_is_safe_to_repeat_is_repeated_and_a_move_is_not(service: Any) -> None:
    """A proxy drops the first connection of each kind without an answer."""
    target = ("127.0.0.1", int(service.url.rpartition(":")[2]))
    listener = socket.create_server(("127.0.0.1", 0))
    dropped: list[bytes] = []
    forwarded: list[bytes] = []

    def proxy() -> None:
        while True:
            try:
                inward, _ = listener.accept()
            except OSError:
                return
            with inward:
                request = inward.recv(65536)
                if not dropped or forwarded:  # the first request, and whatever comes after one that went through
                    dropped.append(request)
                    continue
                forwarded.append(request)
                with socket.create_connection(target) as outward:
                    outward.sendall(request.replace(b"Connection: keep-alive", b"Connection: close"))
                    while answer := outward.recv(65536):
                        inward.sendall(answer)

    thread = threading.Thread(target=proxy)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with Client(url) as client:
        assert len(client.models()) == 1
    assert (len(dropped), len(forwarded)) == (1, 1)
    with Client(url, model="digits") as client, pytest.raises(UnreachableError):
        client.rollback(epoch=1)
    assert len(dropped) == 2
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(PATIENCE_S)


def test_a_stop_lets_requests_in_flight_finish(launch: Any, hold: Any, digits: Any, tmp_path: Any) -> None:
    service = launch(tmp_path)
    held = hold(service.runtime.models.get("digits").plane)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.extend(service.predict(digits.images[:3])))
    asking.start()
    held.wait_until_busy()
    service._server.should_exit = True
    held.go.set()
    asking.join(PATIENCE_S)
    assert len(answers) == 3
    service.close()
