"""`candor cases …` and the client's methods against a running service."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from candor import Client
from candor.errors import ConflictError, NotFoundError
from service.cli import app

POLICY = {
    "positive": "top",
    "bands": [{"action": "accept", "when": {"min_probability": 1.0}}, {"action": "review"}],
    "review": {"due": "4h"},
}


@pytest.fixture
def waiting(service: Any, digits: Any) -> list[str]:
    """Cases in the order of the queue."""
    service.activate(service.http.put("/v1/models/digits/policies/all", json=POLICY).json()["id"])
    rows = service.http.post("/predict?policy=all", json={"inputs": digits.images[:12].tolist()}).json()["predictions"]
    assert service.runtime.log.flush()
    reviewed = [row for row in rows if row["decision"]["action"] == "review"]
    assert len(reviewed) >= 6
    return [row["prediction_id"] for row in sorted(reviewed, key=lambda row: row["confidence"])]


@pytest.fixture
def run(service: Any) -> Callable[..., tuple[int, str]]:
    def call(*arguments: str | Path) -> tuple[int, str]:
        words = ["cases", *map(str, arguments), "--url", service.url]
        done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        return done.exit_code, done.stdout

    return call


def test_the_commands(
    service: Any,
    run: Callable[..., tuple[int, str]],
    waiting: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service.runtime.case_counts, "_stale_at", 0.0)  # someone may have read them before
    code, text = run("list")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()[1:-1]] == waiting
    assert text.splitlines()[-1].startswith(f"{len(waiting)} waiting")
    first, second, third = waiting[:3]
    assert json.loads(run("claim", "--json")[1])["items"][0]["id"] == first
    assert json.loads(run("claim", first, "--lease", 60, "--json")[1])["items"][0]["lease"] == 1
    assert run("label", first, "7") == (0, f"{first}: 7 (stored)\n")
    assert run("skip", second, "--reason", "dark") == (0, f"{second}: skipped\n")
    assert run("release", second) == (0, f"{second}: open\n")
    assert run("assign", third, "--to", "ann") == (0, f"{third}: for ann\n")
    assert run("label", third, "7")[0] == 4  # refused: it is hers
    assert run("assign", third) == (0, f"{third}: for anyone\n")
    assert json.loads(run("show", third)[1])["assignee"] is None
    code, text = run("export")
    assert [json.loads(line)["id"] for line in text.splitlines()] == sorted(waiting[1:])
    assert run("export", "--state", "labelled", "--out", tmp_path / "done.ndjson")[0] == 0
    assert [json.loads(line)["label"] for line in (tmp_path / "done.ndjson").read_text().splitlines()] == ["7"]
    assert run("claim", "--count", 100)[0] == 0
    assert run("claim") == (0, "no case is free\n")
    assert run("list", "--state", "done")[0] == 2


def test_an_empty_queue_says_where_cases_come_from(run: Callable[..., tuple[int, str]]) -> None:
    assert "where the policy has a `review:` block" in run("list")[1]


def test_the_client(service: Any, waiting: list[str]) -> None:
    with Client(service.url) as client:
        first, second = client.claim_cases(2)
        assert [first.id, second.id] == waiting[:2]
        assert client.case(first.id).labels == tuple("0123456789")
        assert client.label_case(first.id, "7", lease=first.lease).feedback == "stored"
        with pytest.raises(ConflictError) as refused:
            client.assign_case(first.id, "ann")
        assert "To assign it, release it first." in str(refused.value.remedy)
        with pytest.raises(ConflictError, match="claimed again"):
            client.skip_case(second.id, "dark", lease=9)
        assert client.skip_case(second.id, "dark", lease=second.lease).reason == "dark"
        assert client.release_case(second.id).state == "open"
        assert client.assign_case(second.id, "ann").assignee == "ann"
        assert client.claim_case(waiting[2], lease_s=5).claimed_by == "local"
        assert [one.id for one in client.cases(assignee="ann").items] == [second.id]
        assert client.cases(limit=2).next is not None
        with pytest.raises(NotFoundError):
            client.case("nothing")
