"""Erasing and pruning, as operators do it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sqlalchemy import func, select

from candor import ApiError, Client
from service.state.tables import predictions
from tests.waiting import until


def ask(service: Any, images: Any, **names: Any) -> list[str]:
    body = {"inputs": images.tolist(), **names}
    answer = service.http.post("/v1/models/digits/predict", json=body).json()
    return [row["prediction_id"] for row in answer["predictions"]]


def test_what_a_subject_left_is_erased_over_http(on_both: Any, digits: Any) -> None:
    service = on_both
    groups = ["card-5", "card-6", "card-5", None]
    ids = ask(service, digits.dimmed[:4], groups=groups, references=["a", None, None, None])
    items = [{"prediction_id": ids[0], "label": "3"}, {"reference": "a", "label": "3"}]
    told = service.http.post("/v1/models/digits/feedback", json={"items": items}, headers={"Idempotency-Key": "1"})
    assert told.status_code == 200
    # Nobody waits for the log here: erasing does.
    with Client(service.url) as client:
        erased = client.erase(group="card-5")
        assert (erased.predictions, erased.inputs, erased.labels, erased.receipts) == (2, 0, 2, 1)
        assert client.erase(group="card-5").predictions == 0
        assert client.erase(prediction_id=ids[1]).predictions == 1
        with pytest.raises(ApiError) as refused:
            client.erase(group="a", reference="b")
    assert refused.value.status == 422
    with service.runtime.database.connect() as connection:
        assert list(connection.scalars(select(predictions.c.id))) == [ids[3]]


@pytest.mark.usefixtures("checks_here")
def test_labelled_sets_with_rows_of_the_group_are_named(on_both: Any) -> None:
    with Client(on_both.url) as client:
        sets = {}
        for group in ("card-5", "card-6"):
            rows = [{"label": "3", "logits": [0.0] * 10, "group": group}, {"label": "4", "logits": [1.0] * 10}]
            sets[group] = client.upload_labelled_set(
                "\n".join(map(json.dumps, rows)).encode(), media_type="application/x-ndjson"
            ).id
        assert client.erase(group="card-5").labelled_sets == (sets["card-5"],)
        assert client.erase(group="card-7").labelled_sets == ()
        assert client.erase(reference="card-5").labelled_sets == ()


def test_from_the_command_line(service: Any, spawn: Any, digits: Any) -> None:
    ask(service, digits.dimmed[:3], groups=["card-5", "card-6", "card-6"])
    done = spawn.run("erase", "--group", "card-6", "--json", url=service.url)
    assert json.loads(done.stdout)["predictions"] == 2, done.stderr
    assert spawn.run("erase", url=service.url).returncode == 2
    for wrong in ("30", "0d", "-1d", "d"):
        assert spawn.run("prune", "--older-than", wrong).returncode == 2
    url = service.runtime.settings.database_url
    done = spawn.run("prune", "--older-than", "1h", "--dry-run", database_url=url)
    assert done.stdout.startswith("would delete 0 predictions"), done.stderr
    with service.runtime.database.begin() as connection:
        connection.execute(predictions.update().values(created_at=5))
    done = spawn.run("prune", "--older-than", "1h", database_url=url)
    assert done.stdout.startswith("deleted 1 prediction, "), done.stderr


def test_a_service_deletes_what_is_too_old_when_it_starts(start: Any, digits: Any) -> None:
    service = start(retention_days=1.0)
    ask(service, digits.dimmed[:3])
    assert service.runtime.log.flush()
    with service.runtime.database.begin() as connection:
        connection.execute(predictions.update().values(created_at=5))
    service.close()
    again = start(retention_days=1.0)
    until(lambda: again.metric("candor_pruned_rows_total", kind="predictions") == 3)
    with again.runtime.database.connect() as connection:
        assert connection.execute(select(func.count()).select_from(predictions)).scalar_one() == 0
