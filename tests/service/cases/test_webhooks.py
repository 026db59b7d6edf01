"""Webhooks: each case arrives at least once and signed, whatever the receiver does; nothing waits for it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from candor.contract.webhooks import CaseEvent, SignatureError, sign, verify
from service.cases import webhooks
from service.errors import ConfigurationError, StateUnavailableError
from service.settings import Settings
from service.state.cases import Case
from service.state.database import Database
from service.state.password import secrets_of
from tests.ports import free_port
from tests.service.conftest import Digits, InThread
from tests.waiting import PATIENCE_S, until

SECRET = "correct horse battery staple, 32"
POLICY = {"positive": "top", "bands": [{"action": "accept", "when": {"min_probability": 1.0}}, {"action": "review"}]}


class Receiver:
    """The process of `receiver.py`, and what it was sent."""

    def __init__(self, folder: Path) -> None:
        self._notes, self._mode = folder / "notes", folder / "mode"
        self._notes.touch()
        self.secret_file = folder / "secret"
        self.secret_file.write_text(f"{SECRET}\n")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/candor"
        self._process: subprocess.Popen[bytes] | None = None
        self.answer("204")

    def answer(self, mode: str) -> None:
        new = self._mode.with_suffix(".new")
        new.write_text(mode)
        new.replace(self._mode)

    def start(self) -> None:
        script = Path(__file__).with_name("receiver.py")
        arguments = [str(self.port), str(self._notes), str(self._mode)]
        self._process = subprocess.Popen([sys.executable, script, *arguments])
        until(self._listens, "the receiver")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)

    def notes(self, mode: str | None = None) -> list[dict[str, Any]]:
        notes = [json.loads(line) for line in self._notes.read_text().splitlines()]
        return [note for note in notes if mode is None or note["mode"] == mode]

    def events(self) -> list[CaseEvent]:
        """Return what it has accepted, verified, in the order of arrival."""
        return [verify(note["body"].encode(), note["signature"], SECRET) for note in self.notes("204")]

    def types(self, case: str) -> list[str]:
        return [event.type.removeprefix("case.") for event in self.events() if event.case.id == case]

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    folder = tmp_path / "receiver"
    folder.mkdir()
    made = Receiver(folder)
    made.start()
    yield made
    made.kill()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_LONGEST_S", 0.1)
    monkeypatch.setattr(webhooks, "_LONGEST_OF_CASE_S", 0.1)


@pytest.fixture
def told(start: Callable[..., InThread], receiver: Receiver) -> Callable[..., InThread]:
    """Start services that tell the receiver, with a queue."""

    def run(**changes: Any) -> InThread:
        own = {"policies": None, "webhook_url": receiver.url, "webhook_secret_file": receiver.secret_file}
        running = start(**(own | changes))
        if running.revisions()["epoch"] == 1:
            put = running.http.put("/v1/models/digits/policies/watch", json=POLICY | {"review": {"due": "1h"}})
            running.activate(put.json()["id"])
        return running

    return run


def make(running: InThread, digits: Digits, count: int, first: int = 0) -> list[str]:
    """Make cases."""
    body = {"inputs": digits.images[first : first + count].tolist()}
    answer = running.http.post("/predict", json=body, params={"policy": "watch"})
    return [one["prediction_id"] for one in answer.json()["predictions"]]


def post(running: InThread, case: str, what: str, **body: Any) -> None:
    answer = running.http.post(f"/v1/models/digits/cases/{case}/{what}", json=body)
    assert answer.status_code == 200, answer.text


def counted(running: InThread, outcome: str) -> float:
    return running.metric("candor_webhook_deliveries_total", outcome=outcome)


def test_a_case_is_told_when_it_comes_ends_and_is_reopened(
    told: Callable[..., InThread], receiver: Receiver, digits: Digits, tmp_path: Path
) -> None:
    running = told()
    one, other = make(running, digits, 2)
    until(lambda: receiver.types(one) == receiver.types(other) == ["waiting"], "both cases")
    post(running, one, "label", label="7")
    until(lambda: receiver.types(one) == ["waiting", "labelled"], "the label")
    assert receiver.events()[-1].case.label == "7"
    post(running, one, "release")
    until(lambda: receiver.types(one)[2:] == ["waiting"], "that it waits again")
    post(running, one, "label", label="1")
    until(lambda: receiver.types(one)[3:] == ["labelled"], "the other label")
    assert receiver.types(other) == ["waiting"]
    events = [event for event in receiver.events() if event.case.id == one]
    assert len({event.id for event in events}) == 4
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert receiver.notes()[0]["path"] == "/candor"
    until(
        lambda: running.metric("candor_webhook_deliveries_total", outcome="delivered") == 5, "the count of deliveries"
    )
    state = b"".join(path.read_bytes() for path in tmp_path.glob("state.db*"))
    assert b"cases" in state
    assert SECRET.encode() not in state


def test_what_fails_is_sent_again_and_one_refused_case_holds_up_no_other(
    told: Callable[..., InThread], receiver: Receiver, digits: Digits
) -> None:
    running = told()
    receiver.answer("500")
    one, other = make(running, digits, 2)
    until(lambda: len(receiver.notes("500")) >= 3, "three attempts")
    assert receiver.events() == []
    receiver.answer(f"422 {one}")
    until(lambda: receiver.types(other) == ["waiting"], "the other case")
    until(lambda: len(receiver.notes("422")) >= 2, "two refusals")
    receiver.answer("204")
    until(lambda: receiver.types(one) == ["waiting"], "the refused case")
    until(lambda: counted(running, "failed") >= 3, "the count of failures")
    until(lambda: counted(running, "refused") >= 2, "the count of refusals")


def test_a_killed_receiver_gets_all_that_it_missed(
    told: Callable[..., InThread], receiver: Receiver, digits: Digits
) -> None:
    running = told()
    before = make(running, digits, 3)
    until(lambda: len(receiver.events()) == 3, "three cases")
    receiver.kill()
    after = make(running, digits, 20, first=3)
    until(lambda: counted(running, "failed") >= 1, "a failure")
    assert running.runtime.log.flush()
    for case in (before[0], after[0]):
        post(running, case, "label", label="3")
    receiver.start()
    until(lambda: {event.case.id for event in receiver.events()} == {*before, *after}, "every case")
    until(lambda: receiver.types(before[0]) == ["waiting", "labelled"], "the label")
    assert receiver.types(after[0]) == ["labelled"]  # changes that nobody heard of are told as one


def test_what_was_delivered_and_could_not_be_noted_is_delivered_again(
    told: Callable[..., InThread], receiver: Receiver, digits: Digits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a crash in between, or where the database is gone at that moment."""
    failures = iter([StateUnavailableError("The database does not answer.")])
    note = webhooks.tell

    def tell(database: Database, case: Case) -> None:
        for failure in failures:
            raise failure
        note(database, case)

    monkeypatch.setattr(webhooks, "tell", tell)
    running = told()
    one, other = make(running, digits, 2)
    until(lambda: {event.case.id for event in receiver.events()} == {one, other}, "both cases")
    until(lambda: counted(running, "delivered") == 2, "two deliveries that were noted")
    first, again, last = receiver.events()
    assert first.id == again.id
    assert last.case.id != first.case.id


def test_nothing_waits_for_a_receiver_that_hangs(
    told: Callable[..., InThread], receiver: Receiver, digits: Digits
) -> None:
    receiver.answer("hang")
    running = told(webhook_timeout_s=600)
    one, *_ = make(running, digits, 2)
    until(lambda: receiver.notes("hang"), "the first attempt")
    make(running, digits, 2, first=2)
    assert running.runtime.log.flush()
    post(running, one, "label", label="3")
    assert running.http.get("/readyz").status_code == 200
    running.close()  # nor does the end: the fixture's own close is the second


def test_an_answer_that_comes_too_late_is_a_failure(
    told: Callable[..., InThread], receiver: Receiver, digits: Digits
) -> None:
    receiver.answer("hang")
    running = told(webhook_timeout_s=0.1)
    with capture_logs() as logs:
        (one,) = make(running, digits, 1)
        until(lambda: len(receiver.notes("hang")) >= 2, "two attempts")
    assert "no answer within 0.1 s" in [line.get("reason") for line in logs]
    receiver.answer("204")
    until(lambda: "waiting" in receiver.types(one), "the case")


def test_no_redirect_is_followed(told: Callable[..., InThread], receiver: Receiver, digits: Digits) -> None:
    running = told()
    receiver.answer(f"307 http://127.0.0.1:{receiver.port}/elsewhere")
    make(running, digits, 1)
    until(lambda: len(receiver.notes("307")) >= 2, "two attempts")
    assert {note["path"] for note in receiver.notes()} == {"/candor"}


def test_of_two_replicas_one_tells_and_the_other_goes_on(
    told: Callable[..., InThread], receiver: Receiver, digits: Digits, postgresql_url: str
) -> None:
    replicas = [told(state=postgresql_url, webhook_timeout_s=5) for _ in range(2)]
    cases = make(replicas[0], digits, 10) + make(replicas[1], digits, 10, first=10)
    until(lambda: len(receiver.events()) >= 20, "every case")
    assert sorted(event.case.id for event in receiver.events()) == sorted(cases)  # once each
    receiver.answer("hang")
    late = make(replicas[1], digits, 1, first=20)
    until(lambda: receiver.notes("hang"), "an attempt")
    receiver.answer("204")
    replicas[0].close()  # it waits for the answer, or the other does
    until(lambda: {event.case.id for event in receiver.events()} == {*cases, *late}, "the last case")


def test_what_is_not_signed_with_the_secret_now_is_refused() -> None:
    body = b'{"id": "1"}'
    signature = sign(body, [SECRET, "an older one"], at=1_000)
    for wrong in (None, "", "t=1000", signature.replace("t=1000", "t=1001"), signature.replace("v1", "v0"), "t=x,v1=0"):
        with pytest.raises(SignatureError):
            verify(body, wrong, SECRET, now=1_000)
    for changed, secret, now in ((b"{}", SECRET, 1_000), (body, "another", 1_000), (body, SECRET, 1_301)):
        with pytest.raises(SignatureError):
            verify(changed, signature, secret, now=now)
    for secret in (SECRET, f"{SECRET}\n", "an older one"):  # the second as a file holds it
        with pytest.raises(ValidationError):  # the signature is right, and the body is not an event
            verify(body, signature, secret, now=1_000)


@pytest.mark.parametrize("content", [b"", b"\n", b"short\n", b"\xff" * 40, b"\n".join([b"x" * 32] * 5)])
def test_a_file_without_a_usable_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ConfigurationError, match="secret"):
        secrets_of(tmp_path / "secret")


def test_two_secrets_sign_while_one_replaces_the_other(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{'n' * 32}\n{'o' * 32}\n")
    assert secrets_of(tmp_path / "secret") == ("n" * 32, "o" * 32)
    for missing in (None, tmp_path / "nothing"):
        with pytest.raises(ConfigurationError):
            secrets_of(missing)


def test_a_url_without_a_secret_is_refused_at_start(start: Callable[..., InThread]) -> None:
    with pytest.raises(ConfigurationError, match="requires a secret"):
        start(webhook_url="http://127.0.0.1:1/")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x",
        "https://",
        "http://user:word@x/",
        "https://x/#a",
        "https://x y/",
        "//x",
        "http://x:99999/",
        "http://[/",
    ],
)
def test_what_is_not_the_url_of_a_receiver_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="webhook_url"):
        Settings(webhook_url=url)
