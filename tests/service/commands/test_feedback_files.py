"""Labels as NDJSON and CSV over HTTP: the same items, statuses and refusals as JSON, on both databases."""

from __future__ import annotations

import gzip
import json
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

NDJSON = {"content-type": "application/x-ndjson"}
CSV = {"content-type": "text/csv; charset=utf-8"}
UNKNOWN_ID = "01J00000000000000000000000"
Item = dict[str, Any]


def as_ndjson(items: list[Item]) -> tuple[bytes, dict[str, str]]:
    return "".join(json.dumps(item) + "\n" for item in items).encode(), NDJSON


def as_csv(items: list[Item]) -> tuple[bytes, dict[str, str]]:
    names = list(dict.fromkeys(name for item in items for name in item))
    rows = [",".join(str(item.get(name, "")) for name in names) for item in items]
    return "\n".join([",".join(names), *rows]).encode(), CSV


FORMATS = pytest.mark.parametrize("write", [as_ndjson, as_csv])


def send(service: Any, body: bytes, headers: dict[str, str], key: str | None = None) -> httpx.Response:
    return service.http.post("/feedback", content=body, headers=headers | ({"idempotency-key": key} if key else {}))


def statuses(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return [item["status"] for item in response.json()["items"]]


def refusal(response: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json")
    document = response.json()
    assert document["type"] == f"/errors/{kind}", document
    assert document["expected"]
    return document


def test_files_of_labels_are_stored_as_json_is(on_both: Any, digits: Any) -> None:
    service = on_both
    ids = [row["prediction_id"] for row in service.predict(digits.images[:4], policy="auto-read")]
    assert service.runtime.log.flush()
    items = [
        {"prediction_id": ids[0], "label": "1", "source": "reviewer"},
        {"prediction_id": ids[1], "label": "2", "labelled_at": "2026-01-02T03:04:05Z"},
        {"reference": "scan-1", "label": "3"},
        {"prediction_id": ids[0], "label": "1", "source": "reviewer"},
        {"prediction_id": ids[0], "label": "9", "source": "system"},
    ]
    first = send(service, *as_ndjson(items), key="lines")
    assert statuses(first) == ["stored", "stored", "pending", "duplicate", "conflict"]
    assert send(service, *as_ndjson(items), key="lines").json() == first.json()
    refusal(send(service, *as_ndjson(items[:1]), key="lines"), 409, "idempotency-conflict")

    assert statuses(send(service, *as_csv(items[:4]))) == ["duplicate"] * 4
    assert statuses(service.http.post("/feedback", json={"items": items[:4]})) == ["duplicate"] * 4
    table = as_csv([{"prediction_id": id_, "label": "5"} for id_ in ids[2:]])
    assert statuses(send(service, *table, key="table")) == ["stored", "stored"]
    assert statuses(send(service, *table, key="table")) == ["stored", "stored"]
    refusal(send(service, *as_csv(items[:1]), key="table"), 409, "idempotency-conflict")


def test_ten_thousand_labels_in_a_table_and_not_one_more(on_both: Any) -> None:
    items = [{"reference": f"row-{number}", "label": "7"} for number in range(10_000)]
    assert statuses(send(on_both, *as_csv(items))) == ["pending"] * 10_000
    assert statuses(send(on_both, *as_ndjson(items))) == ["duplicate"] * 10_000
    more = [*items, {"reference": "one-more", "label": "7"}]
    assert refusal(send(on_both, *as_csv(more)), 422, "input-value")["where"] == "line 10002"
    assert refusal(send(on_both, *as_ndjson(more)), 422, "input-value")["where"] == "line 10001"
    assert on_both.metric("candor_feedback_items_total", outcome="pending") == 10_000


@FORMATS
@pytest.mark.parametrize(
    ("item", "kind", "field"),
    [
        ({"prediction_id": "7", "label": "1"}, "prediction-id", "prediction_id"),
        ({"prediction_id": UNKNOWN_ID, "label": "ten"}, "unknown-label", "label"),
        ({"prediction_id": UNKNOWN_ID, "reference": "a", "label": "1"}, "feedback", None),
        ({"label": "1"}, "feedback", None),
        ({"reference": "a"}, "input", "label"),
        ({"reference": "r" * 201, "label": "1"}, "input", "reference"),
        ({"reference": "a", "label": "1", "source": "s" * 101}, "input", "source"),
        ({"reference": "a\x00b", "label": "1"}, "input", "reference"),
        ({"reference": "a", "label": "1", "labelled_at": "yesterday"}, "input", "labelled_at"),
    ],
)
def test_an_unusable_item_is_named_by_line_and_column_and_nothing_is_stored(
    shared: Any, write: Any, item: Item, kind: str, field: str | None
) -> None:
    good = {"reference": uuid.uuid4().hex, "label": "1"}
    body, headers = write([good, item])
    document = refusal(send(shared, body, headers), 422, kind)
    line, word = (2, "field") if headers is NDJSON else (3, "column")
    assert document["where"] == f"line {line}" + ("" if field is None else f", {word} {field}")
    assert statuses(send(shared, *write([good]))) == ["pending"], "the good item was not stored with the bad one"


@FORMATS
def test_a_label_from_the_future_is_refused(shared: Any, write: Any) -> None:
    item = {"reference": "a", "label": "1", "labelled_at": (datetime.now(UTC) + timedelta(days=1)).isoformat()}
    assert refusal(send(shared, *write([item])), 422, "feedback")["where"].endswith(" labelled_at")


@pytest.mark.parametrize(
    ("body", "headers", "status", "kind", "where"),
    [
        (b'{"reference": "a", "label": "1", "lable": "2"}', NDJSON, 422, "input", "line 1, field lable"),
        (b'{"reference": "a", "label": 1}', NDJSON, 422, "input", "line 1, field label"),
        (b'{"reference": "a", "label": "1"\n', NDJSON, 400, "malformed-body", "line 1, column 32"),
        (b'\n["a"]\n', NDJSON, 422, "input-type", "line 2"),
        (b'{"items": [{"reference": "a", "label": "1"}]}', NDJSON, 422, "input", "line 1, field label"),
        (b"reference,lable\na,1\n", CSV, 422, "input-value", "line 1, column lable"),
        (b"reference,label\na,1,2\n", CSV, 400, "malformed-body", "line 2, column 3"),
        (b"\xff\xfe", CSV, 400, "malformed-body", "line 1, column 1"),
        (b"", CSV, 422, "input-value", "line 1"),
        (b"", NDJSON, 422, "input-value", "line 1"),
    ],
)
def test_what_is_no_such_file(
    shared: Any, body: bytes, headers: dict[str, str], status: int, kind: str, where: str
) -> None:
    assert refusal(send(shared, body, headers), status, kind)["where"] == where


def test_a_compressed_table_replays_its_plain_self(shared: Any) -> None:
    body, headers = as_csv([{"reference": uuid.uuid4().hex, "label": "7"} for _ in range(100)])
    first = send(shared, gzip.compress(body), headers | {"content-encoding": "gzip"}, key="packed")
    assert statuses(first) == ["pending"] * 100
    assert send(shared, body, headers, key="packed").json() == first.json()


def test_other_content_types_are_refused_with_those_that_are_read(shared: Any) -> None:
    for headers in ({"content-type": "text/plain"}, {}):
        document = refusal(send(shared, b"a,b", headers), 415, "unsupported-media-type")
        assert document["expected"] == ["application/json", "application/x-ndjson", "text/csv"]
        assert "application/json, application/x-ndjson or text/csv" in document["remedy"]


def example_of(schema: dict[str, Any], document: dict[str, Any]) -> Any:
    """Return the example of a schema that stands among the components."""
    return document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["example"]


def test_what_the_document_says_is_read(shared: Any) -> None:
    document = shared.http.get("/openapi.json").json()
    for path in ("/feedback", "/v1/models/{model}/feedback"):
        content = document["paths"][path]["post"]["requestBody"]["content"]
        assert set(content) == {"application/json", "application/x-ndjson", "text/csv"}
        received = []
        for media_type, described in content.items():
            body = described["example"] if "example" in described else example_of(described["schema"], document)
            response = shared.http.post(
                path.format(model="digits"),
                content=body if isinstance(body, str) else json.dumps(body),
                headers={"content-type": media_type},
            )
            received.append(statuses(response))
        assert received[0] in (["pending", "pending"], ["duplicate", "duplicate"])
        assert received[1:] == [["duplicate", "duplicate"]] * 2, "the three examples say the same"
