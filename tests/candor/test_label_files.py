"""Files of labels through both clients; the command line's are in test_cli."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from candor import AsyncClient, Client, InvalidRequestError
from candor.label_files import read_labels


def test_both_clients_send_a_file_in_parts_and_once(shared: Any, digits: Any, tmp_path: Path) -> None:
    name = uuid.uuid4().hex
    (seen,) = shared.predict(digits.images[:1], policy="auto-read")
    assert shared.runtime.log.flush()
    table = tmp_path / "labels.csv"
    rows = [f'{seen["prediction_id"]},,7,"two\nlines"', *(f",{name}-{row},7," for row in range(5_001))]
    table.write_text("\ufeffprediction_id,reference,label,source\r\n" + "\r\n".join(rows), newline="")
    lines = tmp_path / "labels.ndjson"
    lines.write_text(
        "\n\n".join(json.dumps({"reference": f"{name}-{row}", "label": "7"}) for row in range(5_001)) + "\n"
    )

    with Client(shared.url) as client:
        first = client.feedback_file(table, source="reviewer", idempotency_key=name)
        assert (first.stored, first.pending, first.duplicates, first.conflicts) == (5_002, 5_001, 0, 0)
        assert [item.status for item in first.items] == ["stored"] + ["pending"] * 5_001
        assert client.feedback_file(str(table), source="reviewer", idempotency_key=name) == first

    async def again() -> Any:
        async with AsyncClient(shared.url) as client:
            return await client.feedback_file(lines, source="reviewer")

    assert asyncio.run(again()).duplicates == 5_001, "the same labels of the same source"


def test_a_refused_label_is_named_by_its_line(shared: Any, tmp_path: Path) -> None:
    name = uuid.uuid4().hex
    path = tmp_path / "labels.csv"
    path.write_text("reference,label\n" + "".join(f"{name}-{row},7\n" for row in range(5_000)) + '"a\nb",ten\n')
    with Client(shared.url) as client:
        with pytest.raises(InvalidRequestError) as refused:
            client.feedback_file(path)
        assert (refused.value.kind, refused.value.where) == ("unknown-label", f"{path}, line 5002, column label")
        path.write_text(f"reference,label\n{name}-0,7\n")
        assert client.feedback_file(path).duplicates == 1, "the parts before it are stored"


@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        ("labels.txt", b"label\n7\n", "ending in one of .csv, .ndjson, .jsonl"),
        ("labels.csv", b"", "line 1: the file has no labels"),
        ("labels.csv", b"reference,label\n", "line 1: the file has no labels"),
        ("labels.csv", b"reference,lable\na,7\n", "line 1: found column 'lable'"),
        ("labels.csv", b"\nreference,lable\na,7\n", "line 2: found column 'lable'"),
        ("labels.csv", b"label,label\n7,7\n", "line 1: found column 'label'"),
        ("labels.csv", b"reference,label\na,7\nb,7,8\n", "line 3: found 3 cells, expected 2"),
        ("labels.csv", b'reference,label\na,7\n"b,7\n', "line 3: it is not CSV"),
        ("labels.csv", b"reference,label\na,7\nb,\xff\n", "line 3: it is not UTF-8"),
        ("labels.ndjson", b"\n", "line 1: the file has no labels"),
        ("labels.ndjson", b'{"label": "7"}\n{"label": "7"\n', "line 2: it is not JSON"),
        ("labels.ndjson", b'{"label": NaN}\n', "line 1: it is not JSON: NaN"),
        ("labels.ndjson", b'{"label": "7", "label": "8"}\n', "line 1: it is not JSON: duplicate name 'label'"),
        ("labels.jsonl", b"[" * 100_000, "line 1: it is not JSON"),
        ("labels.jsonl", b'\n["7"]\n', "line 2: found"),
    ],
)
def test_what_is_no_file_of_labels_is_told_before_anything_is_sent(
    tmp_path: Path, name: str, body: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(body)
    with pytest.raises(ValueError, match=message):
        read_labels(path)


def test_lines_are_read_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "labels.CSV"
    path.write_bytes(b'reference, label ,source\n"a, b",7,\n\n"c\nd",8,x\n')
    assert [(label.line, label.fields) for label in read_labels(path)] == [
        (2, {"reference": "a, b", "label": "7"}),
        (4, {"reference": "c\nd", "label": "8", "source": "x"}),
    ]
