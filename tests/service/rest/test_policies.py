"""PUT …/policies/{id}: JSON and YAML, and bodies that are neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from service.cli import app
from tests.service.conftest import InThread

PATH = "/v1/models/digits/policies/seven"
YAML = b"""\
# comments are kept out of the way
positive: "7"
bands:
  - {action: accept, when: {min_probability: 0.5}}
  - action: review
"""


@pytest.mark.parametrize("content_type", ["application/yaml", "text/yaml; charset=utf-8", "application/x-yaml"])
def test_a_policy_in_yaml_is_the_one_in_json(shared: Any, content_type: str) -> None:
    put = shared.http.put(PATH, content=YAML, headers={"content-type": content_type})
    assert put.status_code == 201, put.text
    bands = [{"action": "accept", "when": {"min_probability": 0.5}}, {"action": "review"}]
    same = shared.http.put(PATH, json={"positive": "7", "bands": bands})
    assert put.json()["policy"]["policy"] == same.json()["policy"]["policy"]


@pytest.mark.parametrize(
    ("content_type", "body", "status", "says"),
    [
        ("application/json", b'{"bands":[' + b"[" * 1000 + b"]" * 1000 + b"]}", 422, "nested deeply"),
        ("application/yaml", b"positive: [", 400, "line 1"),
        ("application/yaml", b"- a\n- b\n", 400, "mapping"),
        ("application/yaml", b"", 400, "mapping"),
        ("application/yaml", b"a: &a [x]\nb: *a\n", 400, "aliases"),
        ("application/yaml", b"bands: [" + b"1, " * 20_000 + b"]", 400, "20,000 keys and values"),
        ("application/yaml", b"id: a\nbands: []\nid: b\n", 400, "duplicate key 'id'"),
        ("application/yaml", b"bands:\n  - {action: a, action: b}\n", 400, "line 2, column 17"),
        ("application/yaml", b"id: 0x" + b"F" * 5_000, 400, "64 bits"),
        ("application/yaml", b"? 0x" + b"F" * 5_000 + b"\n: a", 400, "64 bits"),
        ("application/yaml", b"!!python/object/apply:os.system [id]", 400, "python/object"),
        ("application/yaml", b"a: " + b"[" * 20_000, 400, "YAML"),
        ("application/yaml", b"\xff\xfe\x00", 400, "YAML"),
        ("application/yaml", b"a: " + b"x" * 300_000, 413, "262144"),
        ("application/json", b"[]", 400, "object"),
        ("application/json", b"{", 400, "JSON"),
        ("text/csv", b"a,b\n", 415, "application/yaml"),
    ],
)
def test_other_bodies_are_refused(shared: Any, content_type: str, body: bytes, status: int, says: str) -> None:
    put = shared.http.put(PATH, content=body, headers={"content-type": content_type})
    assert (put.status_code, says in put.text) == (status, True), put.text


def test_a_file_is_put_by_the_command_and_named_when_it_cannot_be_used(shared: Any, tmp_path: Path) -> None:
    file = tmp_path / "seven.yaml"
    file.write_bytes(b"id: put-from-a-file\n" + YAML)
    done = CliRunner().invoke(app, ["policy", "put", str(file), "--url", shared.url])
    assert done.exit_code == 0, done.output
    revision = done.stdout.rpartition(" ")[2].strip()
    assert done.stdout == f"put-from-a-file is proposed in {revision}: candor activate {revision}\n"
    assert "put-from-a-file" in shared.http.get(f"/v1/models/digits/revisions/{revision}").json()["policies"]
    file.write_text("id: [")
    done = CliRunner().invoke(app, ["policy", "put", str(file), "--url", shared.url])
    assert done.exit_code == 2
    assert "seven.yaml" in done.stderr


def put(service: InThread, document: dict[str, Any]) -> dict[str, Any]:
    answer = service.http.put("/v1/models/digits/policies/modest", json=document)
    assert answer.status_code == 201, answer.text
    service.activate(answer.json()["id"])
    found: dict[str, Any] = service.http.get("/v1/models/digits/policies/modest").json()
    return found


def test_a_promise_that_a_put_leaves_as_it_is_costs_no_look(service: InThread) -> None:
    bands: list[dict[str, Any]] = [{"action": "accept", "when": {"min_precision": 0.3}}, {"action": "review"}]
    before = put(service, {"positive": "top", "bands": bands})
    assert before["bands"][0]["certificate"]["valid"], before["bands"][0]["certificate"]["reason"]
    used = service.looks()
    after = put(service, {"positive": "top", "bands": bands, "on_invalid": "review_all"})
    assert (after["bands"], after["version"], service.looks()) == (before["bands"], before["version"] + 1, used)
    bands[0]["when"]["min_precision"] = 0.29
    other = put(service, {"positive": "top", "bands": bands})
    seen = before["bands"][0]["certificate"]["looks"]
    assert (other["bands"][0]["certificate"]["looks"], service.looks()) == (seen + 1, used + 1)
