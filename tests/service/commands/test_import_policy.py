"""`candor import … --policy`: the policy is linted before the import, certified on the bundle, and put into place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from service.cli import app
from service.serving.policy_files import read_policies

LABELS = ("genuine", "fraud")
POLICY = """
id: screening
positive: fraud
bands: [{action: block, when: {min_precision: 0.7}}, {action: allow}]
explore: {share: 0.05, actions: [block, allow]}
"""


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    random = np.random.default_rng(1)
    risk = random.random(1200)
    labels = np.where(random.random(1200) < risk, "fraud", "genuine")
    path = tmp_path / "rows.csv"
    path.write_text("risk,y\n" + "\n".join(f"{score},{label}" for score, label in zip(risk, labels, strict=True)))
    return path


@pytest.fixture
def run(tmp_path: Path, rows: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.delenv("CANDOR_POLICIES", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(policy: str, *options: str) -> Any:
        Path("p.yaml").write_text(policy)
        fixed = ["--name", "vendor", "--label", "y", "--score", "risk", "--labels", ",".join(LABELS)]
        fixed += ["--calibrator", "temperature", "--out", "var/bundles", "--policy", "p.yaml"]
        return CliRunner().invoke(app, ["import", "scores", str(rows), *fixed, *options])

    return call


def test_a_policy_is_certified_and_put_beside_the_bundles(run: Any) -> None:
    done = run(POLICY)
    assert done.exit_code == 0, done.output
    assert "certified      screening: block, precision of at least 70%" in done.output
    assert done.output.splitlines()[-1] == "Next: candor serve --bundles var/bundles --policies var/policies"
    assert [policy.id for policy in read_policies(Path("var/policies"), "vendor", LABELS)] == ["screening"]


def test_it_replaces_the_file_of_the_service_s_folder_that_has_the_id(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANDOR_POLICIES", "own")
    theirs = Path("own/vendor/first.yml")
    theirs.parent.mkdir(parents=True)
    theirs.write_text(POLICY.replace("0.7", "0.6"))
    done = run(POLICY)
    assert (done.exit_code, "--policies own" in done.output.splitlines()[-1]) == (0, True), done.output
    assert theirs.read_text() == POLICY
    assert list(theirs.parent.iterdir()) == [theirs]


def test_a_promise_that_is_not_certified_leaves_the_policy_where_it_is(run: Any) -> None:
    done = run(POLICY.replace("0.7", "0.99"))
    assert (done.exit_code, Path("var/bundles/vendor/1").exists(), Path("var/policies").exists()) == (1, True, False)
    assert "not certified  screening: block" in done.output
    assert "The policy was not copied to var/policies." in done.stderr
    assert "candor policy suggest var/bundles/vendor/1 --positive fraud\n" in done.stderr
    assert "candor serve" not in done.output


def test_a_dry_run_only_lints(run: Any) -> None:
    done = run(POLICY, "--dry-run")
    assert (done.exit_code, Path("var").exists()) == (0, False)
    assert "policy screening: no problems found" in done.output


@pytest.mark.parametrize(
    ("policy", "told", "read"),
    [
        (POLICY.replace("bands", "band"), "Unknown field 'band'", False),
        ("amount,label\n" + "12.5,genuine\n" * 500, "12.5,…\n  expected: ", False),
        (POLICY.replace("block, allow]}", "allow]}"), "Labels are never sought for 'block'", False),
        (POLICY.replace("positive: fraud", "positive: theft"), "no label 'theft'", True),
        (
            POLICY.replace("positive: fraud", "").replace("min_precision: 0.7", "min_probability: 0.4"),
            "never below",
            True,
        ),
    ],
)
def test_a_wrong_policy_is_refused_before_any_work(run: Any, rows: Path, policy: str, told: str, read: bool) -> None:
    if not read:
        rows.write_text("not read")
    done = run(policy)
    assert (done.exit_code, told in done.stderr, Path("var").exists()) == (2, True, False), done.output
    assert "scores: positive" not in done.output


def test_segments_of_the_rows_are_certified_at_first(
    start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one command to decisions: each segment has the certificate of its own reference rows, before any traffic."""
    monkeypatch.delenv("CANDOR_POLICIES", raising=False)
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(3)
    country = np.repeat(["DE", "FR", "AT", "CH"], [3000, 3000, 60, 60])
    risk = random.random(len(country))
    fraud = random.random(len(country)) < np.where(country == "FR", risk**3, risk)
    lines = (f"{one},{where},{int(y)}" for one, where, y in zip(risk, country, fraud, strict=True))
    Path("rows.csv").write_text("\n".join(["risk,country,y", *lines]))
    policy = POLICY.replace("screening", "by-country")
    Path("p.yaml").write_text(f"{policy}segments: {{values: [DE, FR, CH], fallback: review}}\n")
    words = "--name vendor --label y --labels 0=genuine,1=fraud --score risk --segment country --policy p.yaml"
    done = CliRunner().invoke(
        app, ["import", "scores", "rows.csv", *words.split(), "--calibrator", "identity", "--out", "bundles"]
    )
    assert done.exit_code == 0, done.output
    assert "segment CH is not certified. All of its rows go to review" in done.stderr
    assert [name for name in ("DE", "FR") if f"segment {name} is not" in done.stderr] == []
    service = start(bundles=tmp_path / "bundles", policies=tmp_path / "policies")
    answer = service.http.post(
        "/predict?policy=by-country",
        json={
            "scores": [0.97, 0.75, 0.97, 0.75, 0.97, 0.97, 0.97],
            "segments": ["DE", "DE", "FR", "FR", "AT", "CH", None],
        },
    ).json()
    decisions = [row["decision"]["action"] for row in answer["predictions"]]
    assert decisions == ["block", "block", "block", "allow", "review", "review", "review"]
    segments = answer["policy"]["segments"]
    for name in ("DE", "FR"):
        certified = segments[name]["certified"]["block"]
        assert (certified["valid"], certified["basis"], certified["at_least"]) == (True, "reference", 0.7)
        assert certified["n"] < 1500, "rows of its own"
    assert set(segments) == {"DE", "FR", "CH"}
    assert not segments["CH"]["certified"]["block"]["valid"]
