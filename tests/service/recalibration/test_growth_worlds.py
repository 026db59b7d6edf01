"""Certificates that grow, as recalibrations read them: level at all readings, beginnings, and ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from bundle import LabelledLogits, Reference
from calibrators import CALIBRATORS, Calibrator
from candor.contract.policies import Policy
from service.decisions.begun import Made, beginnings, level_of_beginning, promised
from service.decisions.policy import parse_policy
from service.decisions.rows import Rows
from service.decisions.solve import solve_on_reference
from service.decisions.solved import SolvedPolicy
from service.recalibration.growth import Evidence, grown

NAMES = ("genuine", "fraud")
DELTA = 0.2


def policy(**changes: Any) -> Policy:
    bands = [{"action": "block", "when": {"min_precision": 0.9}}, {"action": "review"}]
    certify = {"delta": DELTA, "looks": "anytime", "planned": 150}
    return parse_policy({"id": "p", "positive": "fraud", "bands": bands, "certify": certify} | changes)


def drawn(rng: np.random.Generator, n: int, precision: float) -> LabelledLogits:
    score = rng.normal(size=n).astype(np.float32)
    return LabelledLogits(np.stack([-score, score], axis=1), (rng.random(n) < precision).astype(np.int64))


_SOME = drawn(np.random.default_rng(0), 9, 0.5)
IDENTITY: Calibrator = CALIBRATORS["identity"]().fit(_SOME.logits, _SOME.labels)


def made(*policies: Policy, calibrator: Calibrator = IDENTITY, at: int = 0) -> Made:
    documents = {f"p{i}": {"policy": one.to_dict()} for i, one in enumerate(policies)}
    return Made("r1", "b", at, calibrator.to_dict(), documents)


def test_whoever_reads_at_every_recalibration_is_wrong_at_most_its_level_of_the_time() -> None:
    worlds, false = 120, 0
    rng = np.random.default_rng(4)
    begun = beginnings([made(policy())], NAMES)
    assert begun[0].level == pytest.approx(DELTA * 0.8 * 0.8)
    for world in range(worlds):
        fit, nothing, all_rows = drawn(rng, 150, 0.93), drawn(rng, 0, 0.5), drawn(rng, 600, 0.8999)
        bundle: Any = SimpleNamespace(
            id="b", manifest=SimpleNamespace(labels=NAMES, sharing=1), reference=Reference(fit, nothing, nothing)
        )
        solved = solve_on_reference(policy(), version=1, bundle=bundle, calibrator=IDENTITY, look=1)
        rows = Rows(logits=all_rows.logits, label=all_rows.labels, predicted_at=np.arange(600))
        for read in (60, 150, 300, 600):
            evidence = Evidence(begun, rows.take(slice(read)))
            found = grown(solved, bundle, IDENTITY, IDENTITY, evidence, seed=world)
            assert found is not None
            solved = found.solved
        false += solved.bands[0].stands
    assert 0 < false <= binom.isf(0.001, worlds, begun[0].level)


def entities(rng: np.random.Generator, burst: bool, wrong: tuple[float, float]) -> Rows:
    """Rows of 600 groups; a third have ten rows, the others one. Errors of these and those.

    Args:
        rng: Draws them.
        burst: Whether the rows of a group come within a hundredth of the time; else they come at any time.
        wrong: Share of the groups that are errors, among those of ten rows and the others.
    """
    busy = rng.permutation(600) < 200
    group = np.repeat(np.arange(600), np.where(busy, 10, 1))
    time = (
        rng.uniform(0, 1e6, 600)[group] + rng.uniform(0, 1e4, len(group)) if burst else rng.uniform(0, 1e6, len(group))
    )
    order = np.argsort(time)
    group, right = group[order], rng.random(600) >= np.where(busy, *wrong)
    score = rng.normal(size=600).astype(np.float32)[group]
    logits = np.stack([-score, score], axis=1)
    return Rows(
        logits=logits, label=right[group].astype(np.int64), group=group, predicted_at=time[order].astype(np.int64)
    )


@pytest.mark.parametrize(("burst", "wrong"), [(False, (0.05, 0.12515)), (True, (0.05, 0.12515)), (True, (0.02, 0.02))])
def test_groups_that_return_certify_nothing_and_bursts_do(burst: bool, wrong: tuple[float, float]) -> None:
    """Groups with many rows have fewer errors: 10.01 % of all groups are errors, and fewer of those that come first.

    So the first rows of groups would certify a false promise in a third of the worlds. Where a group has its rows in a
    burst, it comes as early as others, whatever its number of rows.
    """
    rng, worlds, stands = np.random.default_rng(7), 60, 0
    begun = beginnings([made(policy())], NAMES)
    for world in range(worlds):
        fit, nothing, rows = drawn(rng, 150, 0.93), drawn(rng, 0, 0.5), entities(rng, burst, wrong)
        bundle: Any = SimpleNamespace(
            id="b", manifest=SimpleNamespace(labels=NAMES, sharing=1), reference=Reference(fit, nothing, nothing)
        )
        solved = solve_on_reference(policy(), version=1, bundle=bundle, calibrator=IDENTITY, look=1)
        for read in (300, 600, 1_200, 2_200):
            found = grown(solved, bundle, IDENTITY, IDENTITY, Evidence(begun, rows.take(slice(read))), seed=world)
            assert found is not None
            solved = found.solved
        stands += solved.bands[0].stands
    if not burst:
        assert stands == 0
        assert "of the rows are of groups that came before" in found.notes[0]
    elif wrong[0] < wrong[1]:
        assert 0 < stands <= binom.isf(0.001, worlds, begun[0].level)
    else:
        assert stands > 0.9 * worlds


def test_each_change_of_a_promise_begins_anew_with_a_smaller_part() -> None:
    changed = policy(certify={"delta": DELTA, "looks": "anytime", "planned": 151})
    other = policy(bands=[{"action": "block", "when": {"min_precision": 0.95}}, {"action": "review"}])
    found = beginnings([made(policy()), made(policy(), at=1), made(changed, at=2), made(policy(), other, at=3)], NAMES)
    assert [(one.number, one.since_us) for one in found] == [(1, 0), (2, 2), (3, 3)]
    endless = sum(level_of_beginning(DELTA, number) for number in range(1, 10_000))
    assert endless == pytest.approx(DELTA, rel=1e-4)
    assert endless <= DELTA
    unrelated = policy(on_invalid="review_all", id="q")
    assert promised(unrelated, "b") == promised(policy(), "b")
    assert promised(policy(certify={"looks": "once"}), "b") == {}


def test_a_calibrator_that_keeps_the_order_begins_nothing_and_another_does() -> None:
    rows = drawn(np.random.default_rng(1), 400, 0.5)
    fitted = {name: CALIBRATORS[name]().fit(rows.logits, rows.labels) for name in ("temperature", "histogram")}
    found = beginnings(
        [made(policy(), calibrator=one, at=at) for at, one in enumerate([IDENTITY, *fitted.values()])], NAMES
    )
    assert [(one.number, one.calibrator.name) for one in found] == [(1, "identity"), (2, "histogram")]


@pytest.mark.parametrize(
    ("changes", "reason"), [({"kept_since_us": 1}, "rows of that time have been deleted"), ({}, "")]
)
def test_rows_that_retention_deletes_end_the_growth_and_not_the_certificate(
    changes: dict[str, int], reason: str
) -> None:
    rng = np.random.default_rng(2)
    fit, nothing, all_rows = drawn(rng, 150, 0.99), drawn(rng, 0, 0.5), drawn(rng, 600, 0.99)
    bundle: Any = SimpleNamespace(
        id="b", manifest=SimpleNamespace(labels=NAMES, sharing=1), reference=Reference(fit, nothing, nothing)
    )
    before: SolvedPolicy = solve_on_reference(policy(), version=1, bundle=bundle, calibrator=IDENTITY, look=1)
    rows = Rows(logits=all_rows.logits, label=all_rows.labels, predicted_at=np.arange(600))
    begun = beginnings([made(policy())], NAMES)
    first = grown(before, bundle, IDENTITY, IDENTITY, Evidence(begun, rows, **changes), seed=0)
    assert first is not None
    (certificate,) = (band.certificate for band in first.solved.bands if band.certificate is not None)
    assert certificate.valid is not bool(reason)
    if reason:
        assert certificate.reason is not None
        assert reason in certificate.reason
        return
    later = grown(first.solved, bundle, IDENTITY, IDENTITY, Evidence(begun, rows, kept_since_us=1), seed=0)
    assert later is not None
    assert later.solved == first.solved


def test_an_alarm_ends_what_grew_before_it() -> None:
    rng = np.random.default_rng(2)
    fit, nothing, all_rows = drawn(rng, 150, 0.99), drawn(rng, 0, 0.5), drawn(rng, 600, 0.99)
    bundle: Any = SimpleNamespace(
        id="b", manifest=SimpleNamespace(labels=NAMES, sharing=1), reference=Reference(fit, nothing, nothing)
    )
    rows = Rows(logits=all_rows.logits, label=all_rows.labels, predicted_at=5 + np.arange(600))
    begun = beginnings([made(policy(), at=5)], NAMES)
    void = solve_on_reference(
        policy(), version=1, bundle=bundle, calibrator=IDENTITY, look=1, broken={"precision": "alarm: voided"}
    )
    for voided_us, valid in ((4, True), (7, False)):
        found = grown(void, bundle, IDENTITY, IDENTITY, Evidence(begun, rows, voided_us=voided_us), seed=0)
        assert found is not None
        assert found.solved.bands[0].stands is valid
        assert found.solved.review_all is not valid
