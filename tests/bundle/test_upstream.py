"""The document of a model on another server: what it may name, and that it reads back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bundle import BundleFormatError, Upstream
from bundle.upstream import metadata_digest

FIELDS: dict[str, Any] = {"url": "https://models:8443/gateway", "model": "a b/c", "metadata": "0" * 64}


def test_it_reads_back() -> None:
    upstream = Upstream(**FIELDS, version="3", by_version=True, headers={"Authorization": "CANDOR_HEADER_KEY"})
    assert Upstream.load(upstream.dump()) == upstream
    assert upstream.path == "https://models:8443/gateway/v2/models/a%20b%2Fc/versions/3"


@pytest.mark.parametrize(
    "url",
    [
        "models:8000",
        "ftp://models",
        "file:///etc/passwd",
        "http://",
        "http://me:secret@models",
        "http://me@models",
        "http://models?x=1",
        "http://models#x",
        "http://models/",
        "http://mo dels",
        "http://models\r\nhost: other",
        "http://models:0",
        "http://models:99999",
        "http://módels",
    ],
)
def test_an_address_is_only_an_address(url: str) -> None:
    with pytest.raises(BundleFormatError, match="invalid upstream"):
        Upstream.load(json.dumps(FIELDS | {"url": url}).encode())


@pytest.mark.parametrize(
    ("header", "variable"),
    [
        ("authorization", "CANDOR_DATABASE_URL"),
        ("authorization", "AWS_SECRET_ACCESS_KEY"),
        ("authorization", "Bearer secret"),
        ("Host", "CANDOR_HEADER_KEY"),
        ("Content-Length", "CANDOR_HEADER_KEY"),
        ("inference-header-content-length", "CANDOR_HEADER_KEY"),
        ("transfer-encoding", "CANDOR_HEADER_KEY"),
        ("x y", "CANDOR_HEADER_KEY"),
    ],
)
def test_a_header_refers_to_no_other_variable(header: str, variable: str) -> None:
    with pytest.raises(BundleFormatError, match="invalid upstream"):
        Upstream.load(json.dumps(FIELDS | {"headers": {header: variable}}).encode())


@pytest.mark.parametrize(
    "change", [{"timeout_s": 0}, {"timeout_s": 1e9}, {"retries": 9}, {"on_change": "ignore"}, {"x": 1}, {"version": ""}]
)
def test_what_does_not_belong_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BundleFormatError, match="invalid upstream"):
        Upstream.load(json.dumps(FIELDS | change).encode())


def test_the_digest_of_metadata_covers_all_but_the_list_of_versions() -> None:
    document = {"name": "m", "versions": ["1"], "inputs": [{"name": "x", "shape": [-1, 3]}]}
    assert metadata_digest(document) == metadata_digest(document | {"versions": ["1", "2"]})
    assert metadata_digest(document) != metadata_digest(document | {"inputs": [{"name": "x", "shape": [-1, 4]}]})
