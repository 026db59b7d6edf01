"""Looks of a running service: which rows it takes for fresh, and that each look draws anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import bundle as bundles
from bundle import BundleContents, LabelledLogits
from candor.contract.certificates import Basis
from service.serving import proposals
from service.state.database import now_us
from service.times import DAY_US, iso
from tests.array_files import npz

from ..conftest import Digits, InThread, contents

pytestmark = pytest.mark.usefixtures("refits_here", "proofs_here", "checks_here")
ROWS = 600


def recalibrated(service: InThread, since: int | None = None) -> dict[str, Any]:
    source = {} if since is None else {"source": {"feedback": {"since": iso(since)}}}
    answer = service.recalibrate(mode="dry_run", **source)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def looks(found: dict[str, Any]) -> tuple[Basis, int]:
    """Return what certified "accept", and the look at it."""
    certificate = found["policies"]["auto-read"]["certified"]["accept"]
    return certificate["basis"], certificate["looks"]


def test_inputs_that_return_with_their_labels_are_not_fresh(service: InThread, digits: Digits) -> None:
    """Whatever their ids and times, for the gate and for certificates; other inputs are."""
    service.teach(digits.images[:ROWS], digits.labels[:ROWS])
    first = recalibrated(service)
    assert (first["gate"]["attempt"], looks(first)) == (1, ("traffic", 1))
    replay = now_us()
    service.teach(digits.images[:ROWS], digits.labels[:ROWS])
    again = recalibrated(service, since=replay)
    assert again["rows"]["gate"] == first["rows"]["gate"]
    assert (again["gate"]["attempt"], looks(again)) == (2, ("traffic", 2))
    others = now_us()
    service.teach(digits.images[ROWS : 2 * ROWS], digits.labels[ROWS : 2 * ROWS])
    fresh = recalibrated(service, since=others)
    assert (fresh["gate"]["attempt"], looks(fresh)) == (1, ("traffic", 1))


def test_a_start_before_every_row_is_that_of_the_rule(service: InThread, digits: Digits) -> None:
    """The rows are the same, so the choice costs nothing; a start that leaves a row out divides delta."""
    service.teach(digits.images[:ROWS], digits.labels[:ROWS])
    found = recalibrated(service, since=now_us() - 30 * DAY_US)
    assert found["policies"]["auto-read"]["certified"]["accept"]["delta"] == pytest.approx(0.05 / 2)
    later = now_us()
    service.teach(digits.images[ROWS : 2 * ROWS], digits.labels[ROWS : 2 * ROWS])
    found = recalibrated(service, since=later)
    assert looks(found) == ("traffic", 1)
    assert found["policies"]["auto-read"]["certified"]["accept"]["delta"] < 0.05 / 2 / 144


def test_feedback_in_a_labelled_set_is_not_fresh(service: InThread, digits: Digits) -> None:
    """For the gate and for certificates: whoever uploads it has seen what it showed as traffic."""
    service.teach(digits.images[:ROWS], digits.labels[:ROWS])
    assert looks(recalibrated(service)) == ("traffic", 1)
    body = npz(inputs=digits.images[:ROWS], label=np.array(digits.labels[:ROWS]))
    sent = {"params": {"represents": "traffic"}, "headers": {"content-type": "application/x-npz"}}
    made = service.http.post("/v1/models/digits/labelled-sets", content=body, **sent)
    assert made.status_code == 201, made.text
    again = service.recalibrate(mode="dry_run", source={"labelled_set": made.json()["id"]}).json()
    assert (again["gate"]["attempt"], looks(again)) == (2, ("uploaded", 2))


def exported_again(digits: Digits) -> BundleContents:
    """Return the same weights in another file."""
    exported = onnx.load_from_string(digits.bundle.model_bytes)
    exported.producer_name = "another exporter"
    return contents(digits.bundle, model_bytes=exported.SerializeToString())


def a_row_less(digits: Digits) -> BundleContents:
    reference = digits.bundle.reference
    certify = LabelledLogits(reference.certify.logits[1:], reference.certify.labels[1:])
    return contents(digits.bundle, reference=replace(reference, certify=certify))


@pytest.mark.parametrize("changed", [exported_again, a_row_less])
def test_another_bundle_shows_the_same_reference_rows(
    start: Callable[..., InThread], digits: Digits, tmp_path: Path, changed: Callable[[Digits], BundleContents]
) -> None:
    root = Path(shutil.copytree(digits.root, tmp_path / "bundles"))
    policy = tmp_path / "policies" / "digits" / "auto-read.yaml"
    policy.parent.mkdir(parents=True)
    bands = [{"action": "accept", "when": {"min_precision": 0.97}}, {"action": "review"}]
    policy.write_text(json.dumps({"id": "auto-read", "bands": bands, "explore": {"share": 1.0, "actions": ["accept"]}}))
    service = start(bundles=root, policies=tmp_path / "policies")
    bundles.write(root, changed(digits))
    revision = service.http.post("/v1/models/digits/load").json()["proposed"]["2"]
    proposed = service.http.get(f"/v1/models/digits/revisions/{revision}").json()
    certificates = [band["certificate"] for band in proposed["policies"]["auto-read"]["bands"]]
    assert [(one["basis"], one["looks"]) for one in certificates if one] == [("reference", 2)]
    service.activate(revision)
    service.teach(digits.images[:200], digits.labels[:200])  # too few to certify
    assert looks(recalibrated(service)) == ("reference", 3)


def test_sets_are_the_same_promise_under_any_positive_class(service: InThread, digits: Digits) -> None:
    """Each put has seen the answer before it; a recalibration solves all sets before any answer, so none is chosen."""
    bands, sets, looks_at = [{"action": "accept"}], {"coverage": 0.95, "per_class": False}, []
    for positive in "456":
        path = f"/v1/models/digits/policies/of-{positive}"
        service.activate(service.http.put(path, json={"positive": positive, "bands": bands, "set": sets}).json()["id"])
        looks_at.append(service.http.get(path).json()["sets"][""]["looks"])
    assert looks_at == [1, 2, 3]
    service.teach(digits.images[:ROWS], digits.labels[:ROWS])
    policies = recalibrated(service)["policies"]
    found = [policies[f"of-{positive}"]["sets"][""] for positive in "456"]
    assert [(one["basis"], one["looks"], one["valid"]) for one in found] == [("traffic", n, True) for n in (1, 2, 3)]
    again = recalibrated(service)["policies"]["of-6"]["sets"][""]
    assert (again["basis"], again["looks"]) == ("traffic", 6)


def test_each_look_at_reference_rows_draws_anew(service: InThread, monkeypatch: pytest.MonkeyPatch) -> None:
    solve, seeds = proposals.solve_on_reference, []

    def spied(*given: Any, seed: int = 0, **options: Any) -> Any:
        seeds.append(seed)
        return solve(*given, seed=seed, **options)

    monkeypatch.setattr(proposals, "solve_on_reference", spied)
    document = {"bands": [{"action": "accept", "when": {"min_precision": 0.9}}, {"action": "review"}]}
    for name in ("one", "another"):
        assert service.http.put(f"/v1/models/digits/policies/{name}", json=document).status_code == 201
    assert len(set(seeds)) == len(seeds) == 2
