"""What a prediction's answer says of the log: nothing, that it is written down, or that nothing is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, func, select

from service.errors import StateUnavailableError
from service.state.tables import predictions
from tests.waiting import until


def logged(service: Any) -> int:
    with service.runtime.database.connect() as connection:
        return int(connection.execute(select(func.count()).select_from(predictions)).scalar_one())


def ask(service: Any, images: Any) -> Any:
    return service.http.post("/v1/models/digits/predict", json={"inputs": images.tolist()})


def test_in_sync_mode_what_is_answered_is_there(start: Any, digits: Any) -> None:
    service = start(log_mode="sync")
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda row: ask(service, digits.dimmed[row : row + 2]), range(24)))
    assert {answer.status_code for answer in answers} == {200}
    ids = {item["prediction_id"] for answer in answers for item in answer.json()["predictions"]}
    with service.runtime.database.connect() as connection:
        assert set(connection.scalars(select(predictions.c.id))) == ids
    assert ask(service, digits.dimmed[:1]).status_code == 200
    assert logged(service) == 49


def test_in_sync_mode_what_cannot_be_written_is_not_answered_and_never_logged(
    start: Any, digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(log_mode="sync", deadline_s=0.3)
    database = service.runtime.database
    begin, over = database.begin, threading.Event()

    @contextmanager
    def unanswered() -> Iterator[Connection]:
        if not over.is_set():
            raise StateUnavailableError("no answer")
        with begin() as connection:
            yield connection

    monkeypatch.setattr(database, "begin", unanswered)
    refused = ask(service, digits.dimmed[:1])
    assert (refused.status_code, refused.json()["type"]) == (503, "/errors/state-unavailable")
    assert refused.headers["retry-after"]
    assert service.http.get("/livez").status_code == 200
    over.set()
    assert service.runtime.log.flush()
    assert logged(service) == 0
    until(lambda: ask(service, digits.dimmed[:1]).status_code == 200)  # on a busy machine not at once
    assert logged(service) == 1


def test_off_logs_nothing(start: Any, digits: Any) -> None:
    service = start(log_mode="off")
    answer = ask(service, digits.dimmed[:3]).json()
    assert service.runtime.log.flush()
    assert logged(service) == 0
    item = {"prediction_id": answer["predictions"][0]["prediction_id"], "label": "3"}
    receipt = service.http.post("/v1/models/digits/feedback", json={"items": [item]}).json()
    assert receipt["pending"] == 1
