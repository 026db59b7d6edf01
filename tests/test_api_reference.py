"""The API reference is generated from a running service: every operation, each with examples that are true."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from examples.api_reference.page import printed
from examples.api_reference.steady import Steady
from service.app import create_app
from service.settings import Settings


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_operation_is_there_with_an_example_that_ran(api_reference: Path, tmp_path: Path) -> None:
    """The generator itself fails where an answer is not as the OpenAPI document says."""
    page = api_reference.read_text(encoding="utf-8")
    app = create_app(Settings(bundles=tmp_path, database_url=f"sqlite:///{tmp_path}/state.db"))
    told = dict(re.findall(r"^### `([A-Z]+ /[^`]*)`$(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    operations = {f"{method.upper()} {path}" for path, item in app.api.openapi()["paths"].items() for method in item}
    assert told.keys() == operations
    for operation, text in told.items():
        assert re.search(r"^\$ curl .*?^`2\d\d [A-Z]", text, re.MULTILINE | re.DOTALL), operation


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_nothing_of_the_run_is_left_on_it(api_reference: Path) -> None:
    page = api_reference.read_text(encoding="utf-8")
    assert "127.0.0.1:8000" in page
    assert set(re.findall(r"127\.0\.0\.1:(\d+)", page)) == {"8000"}
    assert set(re.findall(r"\b20\d\d-\d\d-\d\d(?=T)", page)) == {"2026-11-02"}
    assert "/tmp/" not in page


def test_ids_and_times_of_each_run_are_given_the_same_ones() -> None:
    first = {"id": "01M7WA527EA4B2MCH4MJVA11G7", "at": "2026-11-21T03:14:42.123456Z", "label": "7", "rows": 0.123441}
    second = {"id": "01M7WB527EA4B2MCH4MJVA11G8", "at": "2026-12-01T00:00:00Z", "label": "7", "rows": 0.123449}
    told = [Steady([str(document)]).document(document) for document in (first, second)]
    assert told[0] == told[1]
    assert told[0] == {"id": told[0]["id"], "at": "2026-11-02T09:00:00.000000Z", "label": "7", "rows": 0.1234}


def test_later_times_stay_later() -> None:
    texts = ['"2026-11-21T03:14:42.5Z"', '"2026-11-21T03:14:41.5Z"']
    steady = Steady(texts)
    assert steady.text(texts[1]) < steady.text(texts[0])


def test_short_documents_take_one_line_and_long_ones_one_for_each_entry() -> None:
    assert printed({"a": [1, {"b": None}]}) == '{"a": [1, {"b": null}]}'
    assert printed({"a": "x" * 80, "b": ["y" * 40]}).splitlines() == [
        "{",
        f'  "a": "{"x" * 80}",',
        f'  "b": ["{"y" * 40}"]',
        "}",
    ]
