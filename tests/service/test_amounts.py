"""Amounts at stake: from every way in to the log, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from candor import Client
from service.bulk import Options, score
from service.state.tables import predictions


@pytest.fixture(scope="module")
def shared(launch: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    running = launch(tmp_path_factory.mktemp("amounts"))
    yield running
    running.close()


def logged(service: Any, ids: list[str]) -> list[float | None]:
    assert service.runtime.log.flush()
    with service.runtime.database.connect() as connection:
        query = select(predictions.c.id, predictions.c.amount).where(predictions.c.id.in_(ids))
        amounts = dict(map(tuple, connection.execute(query)))
    return [amounts[id_] for id_ in ids]


def ids_of(document: dict[str, Any]) -> list[str]:
    if "parameters" in document:
        return document["parameters"]["prediction_ids"].split(",")
    return document.get("prediction_ids") or [row["prediction_id"] for row in document["predictions"]]


def test_every_protocol_logs_the_amounts_of_its_rows(on_both: Any, digits: Any) -> None:
    rows = digits.images[:3].tolist()
    given = [12.5, None, 0]
    pixels = {"name": "input", "datatype": "UINT8", "shape": [3, 8, 8, 1], "data": digits.images[:3].ravel().tolist()}
    tensor = {"name": "amounts", "datatype": "FP64", "shape": [3], "data": given}
    asked = [
        ("/predict", {"inputs": rows, "amounts": given}, given),
        ("/predict", {"inputs": rows, "amounts": None}, [None] * 3),
        ("/predict", {"inputs": rows}, [None] * 3),
        ("/v1/models/digits:predict", {"instances": rows, "amounts": given}, given),
        ("/v2/models/digits/infer", {"inputs": [pixels, tensor]}, given),
    ]
    for path, body, expected in asked:
        response = on_both.http.post(path, json=body)
        assert response.status_code == 200, response.text
        assert logged(on_both, ids_of(response.json())) == expected


def test_many_rows_take_the_way_of_copy(on_both: Any, digits: Any) -> None:
    amounts = [float(row) if row % 3 else None for row in range(100)]
    response = on_both.http.post("/predict", json={"inputs": digits.images[:100].tolist(), "amounts": amounts})
    assert logged(on_both, ids_of(response.json())) == amounts


def test_the_client_sends_them_with_arrays_and_images(shared: Any, digits: Any, tmp_path: Path) -> None:
    with Client(shared.url, model="digits") as client:
        found = client.predict(digits.images[:2], amounts=np.array([7.25, np.nan]))
        assert logged(shared, [row.prediction_id for row in found.predictions]) == [7.25, None]
        image = Path("examples/seven.png").read_bytes()
        found = client.predict_images([image, image], amounts=[None, 3])
        assert logged(shared, [row.prediction_id for row in found.predictions]) == [None, 3.0]


def test_scored_files_log_a_column_of_amounts(shared: Any, digits: Any, tmp_path: Path) -> None:
    lines = [
        {"inputs": digits.images[0].tolist(), "paid": 10.5},
        {"inputs": digits.images[1].tolist(), "paid": None},
        {"inputs": digits.images[2].tolist(), "paid": -1},
    ]
    source = tmp_path / "rows.ndjson"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = Options(amount="paid", processes=1, log=True, on_error="skip")
    state = shared.runtime.settings
    summary = score(source, tmp_path / "out", options, settings=state, database_url=state.database_url)
    assert (summary.rows, summary.rejected) == (2, 1)
    (part,) = (tmp_path / "out").glob("part-*.ndjson")
    rows = [json.loads(line) for line in part.read_text().splitlines()]
    assert logged(shared, [row["prediction_id"] for row in rows]) == [10.5, None]


@pytest.mark.parametrize(
    ("amounts", "where"),
    [
        ([-0.01], "/amounts/0"),
        ([1e16], "/amounts/0"),
        (["12"], "/amounts/0"),
        ([True], "/amounts/0"),
        ([[1]], "/amounts/0"),
        ([1, 2], "/amounts"),
        ([], "/amounts"),
        (7, "/amounts"),
    ],
)
def test_amounts_that_cannot_be_are_refused_with_their_place(
    shared: Any, digits: Any, amounts: Any, where: str
) -> None:
    response = shared.http.post("/predict", json={"inputs": digits.images[:1].tolist(), "amounts": amounts})
    assert (response.status_code, response.json()["where"]) == (422, where)


def test_a_tensor_of_amounts_is_refused_likewise(shared: Any, digits: Any) -> None:
    pixels = {"name": "input", "datatype": "UINT8", "shape": [1, 8, 8, 1], "data": digits.images[0].ravel().tolist()}
    for tensor, said in [
        ({"datatype": "FP64", "shape": [1], "data": [-1]}, "0 to 1e+15"),
        ({"datatype": "BYTES", "shape": [1], "data": ["1"]}, "BYTES"),
        ({"datatype": "FP64", "shape": [2], "data": [1, 2]}, "one entry per input"),
    ]:
        body = {"inputs": [pixels, tensor | {"name": "amounts"}]}
        response = shared.http.post("/v2/models/digits/infer", json=body)
        assert response.status_code == 422
        assert said in response.json()["error"]


def test_a_policy_decides_by_the_amount_of_each_row(service: Any, digits: Any) -> None:
    cost = {"false_positive": "1 + 0.1 * amount", "false_negative": "amount", "review": 3}
    bands = [{"action": action, "when": {"cost": cost}} for action in ("block", "review")]
    made = service.http.put(
        "/v1/models/digits/policies/by-money", json={"positive": "7", "bands": [*bands, {"action": "allow"}]}
    )
    assert made.status_code == 201, made.text
    service.activate(made.json()["id"])
    amounts = [0.5, 20.0, 5_000.0, None] * 25
    body = {"inputs": digits.images[:100].tolist(), "amounts": amounts}
    found = service.http.post("/predict?policy=by-money", json=body).json()["predictions"]
    expected = []
    for row, amount in zip(found, amounts, strict=True):
        if amount is None:
            expected.append("review")
            continue
        p = row["probabilities"]["7"]
        costs = {"block": (1 - p) * (1 + 0.1 * amount), "review": 3, "allow": p * amount}
        expected.append(min(costs, key=lambda action: costs[action]))
    assert [row["decision"]["action"] for row in found] == expected
    assert set(expected) == {"block", "review", "allow"}
    assert service.runtime.log.flush()
    again = service.http.post("/v1/models/digits/policies/by-money/simulate", json={}).json()
    assert again["decisions"]["flipped"] == 0
    assert {action: volume["after"] for action, volume in again["actions"].items()} == {
        action: expected.count(action) for action in ("block", "review", "allow")
    }
