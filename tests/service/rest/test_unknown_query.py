"""Query parameters that an endpoint does not have: a filter with a mistyped name must not list everything."""

from __future__ import annotations

import re
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/jobs?stat=done"),
        ("GET", "/v1/models?x=1"),
        ("GET", "/v1/models/digits?x=1"),
        ("GET", "/v1/models/digits/revisions?limits=5"),
        ("GET", "/v1/models/digits/monitoring?x=1"),
        ("POST", "/v1/models/digits/feedback?source=me"),
        ("POST", "/feedback?source=me"),
        ("POST", "/v1/models/digits/recalibrate?mode=propose"),
        ("POST", "/recalibrate?mode=propose"),
        ("GET", "/v2/models/digits/stats?x=1"),
        ("GET", "/v2?x=1"),
    ],
)
def test_they_are_refused(shared: Any, method: str, path: str) -> None:
    name = path.partition("?")[2].partition("=")[0]
    document = shared.http.request(method, path, json={"items": []} if method == "POST" else None).json()
    assert "Unknown query parameter" in str(document)
    if path.startswith("/v1"):
        assert (document["status"], document["where"], document["found"]) == (422, f"?{name}", name)


@pytest.mark.parametrize(
    "path", ["/v1/jobs?limit=3&state=running", "/v1/models/digits/revisions?limit=5", "/v2/health/ready?x"]
)
def test_known_parameters_are_accepted(shared: Any, path: str) -> None:
    assert shared.http.get(path).status_code == 200


def test_every_operation_refuses_them(shared: Any) -> None:
    paths = shared.http.get("/openapi.json").json()["paths"]
    for path, operations in paths.items():
        if not path.startswith(("/v1/", "/v2/")) or path.startswith("/v2/health/"):
            continue
        if path == "/v1/multilabel/{model}/predict":  # looks for its model first, and there is none
            continue
        for method in operations.keys() & {"get", "post", "put", "delete"}:
            place = re.sub(r"{[^}]*}", "digits", path.replace("{version}", "1"))
            response = shared.http.request(method, f"{place}?no_such_name=1", json=None if method == "get" else {})
            assert "no_such_name" in response.text, (method, path, response.text)
