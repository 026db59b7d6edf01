"""Policies solved on reference rows that have groups, segments and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bundle import LabelledLogits, Reference
from calibrators import CALIBRATORS
from service.decisions.policy import parse_policy
from service.decisions.solve import fingerprint, solve_on_reference

BANDS = [{"action": "accept", "when": {"min_precision": 0.9}}, {"action": "review"}]


def part(seed: int, n: int, **columns: Any) -> LabelledLogits:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 4, (n, 10)).astype(np.float32)
    labels = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return LabelledLogits(logits, labels, **{name: make(n) for name, make in columns.items()})


def repeated(rows: LabelledLogits, times: int) -> LabelledLogits:
    """Each row so often, as one group."""
    groups = np.repeat(np.arange(len(rows.labels)), times)
    return LabelledLogits(np.repeat(rows.logits, times, 0), np.repeat(rows.labels, times), group=groups)


def solved(digits: Any, fit: LabelledLogits, certify: LabelledLogits, **fields: Any) -> Any:
    bundle = replace(digits.bundle, reference=Reference(fit, certify, certify))
    policy = parse_policy({"id": "read", "bands": BANDS, **fields})
    identity = CALIBRATORS["identity"]().fit(fit.logits, fit.labels)
    return solve_on_reference(policy, version=1, bundle=bundle, calibrator=identity, look=1)


def test_rows_of_one_group_certify_as_one_row(digits: Any) -> None:
    fit, certify = part(1, 400), part(2, 400)
    once = solved(digits, fit, certify).bands[0].certificate
    often = solved(digits, repeated(fit, 5), repeated(certify, 5)).bands[0].certificate
    assert once.valid
    assert often.valid
    assert often.groups == pytest.approx(once.n, rel=0.05)
    assert (often.n, often.group_limit) == (5 * often.groups, 5)


def test_segments_of_reference_rows_certify_at_first(digits: Any) -> None:
    def names(n: int) -> np.ndarray:
        return np.where(np.arange(n) % 4, "DE", "")

    rows = part(1, 1200, segment=names), part(2, 1200, segment=names)
    found = solved(digits, *rows, segments={"values": ["DE", "FR"], "fallback": "review"})
    assert found.segments["DE"].certified
    assert not found.segments["FR"].certified


def test_weighted_rows_certify_nothing_and_say_so(digits: Any) -> None:
    def weights(n: int) -> np.ndarray:
        return np.linspace(1, 9, n)

    found = solved(digits, part(1, 400), part(2, 400, weight=weights)).bands[0].certificate
    assert not found.valid
    assert "weighted" in found.reason


def test_the_fingerprint_knows_rows_again_and_no_others() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (400, 4)).astype(np.float32)
    labels = rng.integers(0, 4, 400)
    order = rng.permutation(400)
    same = [
        LabelledLogits(logits[order], labels[order]),
        LabelledLogits(logits + np.float32(5), labels),
        LabelledLogits(np.nextafter(logits, np.float32(np.inf)), labels),
    ]
    assert {fingerprint(rows) for rows in same} == {fingerprint(LabelledLogits(logits, labels))}
    impossible = logits.copy()
    impossible[0, 0] = -np.inf
    others = [
        LabelledLogits(logits[:399], labels[:399]),
        LabelledLogits(logits, (labels + (np.arange(400) == 0)) % 4),
        LabelledLogits(rng.normal(0, 3, (400, 4)).astype(np.float32), labels),
        LabelledLogits(impossible, labels),
        LabelledLogits(np.zeros((400, 4), np.float32), labels),
        LabelledLogits(logits[:0], labels[:0]),
    ]
    found = {fingerprint(rows) for rows in (*same, *others)}
    assert len(found) == 1 + len(others)
