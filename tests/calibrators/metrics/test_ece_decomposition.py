from __future__ import annotations

import itertools

import numpy as np
import pytest

from calibrators import CalibrationDataError, softmax
from calibrators.metrics import accuracy, ece_decomposition, expected_calibration_error, refinement_auroc


def test_the_terms_of_equation_9(world):
    logits, labels = world(500, 4, 2.0)
    probabilities = softmax(logits)
    for weight in (None, np.random.default_rng(0).uniform(0.1, 2, 500)):
        right = accuracy(probabilities, labels, weight)
        r = refinement_auroc(probabilities, labels, weight)
        parts = ece_decomposition(probabilities, labels, weight)
        assert parts.confidence == pytest.approx(np.average(probabilities.max(axis=1), weights=weight))
        assert parts.refinement == pytest.approx(2 * r * right * (1 - right))
        assert parts.constant == pytest.approx((right**2 + (1 - right) ** 2) / 2)
        assert parts.value == pytest.approx(parts.confidence - parts.refinement - parts.constant)
        assert parts.gap == pytest.approx(parts.confidence - right)


def test_what_stands_for_accuracy_is_the_mean_accuracy_of_telling_right_from_wrong(world):
    logits, labels = world(400, 3, 1.5)
    probabilities = softmax(logits)
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    ranked = correct[np.argsort(-confidence)]
    # Of every number of rows called right, from none to all: the share of rows called what they are.
    hits = [(ranked[:k].sum() + (~ranked[k:]).sum()) / 400 for k in range(401)]
    mean = np.mean([(a + b) / 2 for a, b in itertools.pairwise(hits)])
    parts = ece_decomposition(probabilities, labels)
    assert parts.refinement + parts.constant == pytest.approx(mean, abs=1e-12)


def test_the_gap_is_the_error_where_every_bin_is_overconfident(world):
    logits, labels = world(20_000, 3, 4.0)
    probabilities = softmax(logits)
    assert ece_decomposition(probabilities, labels).gap == pytest.approx(
        expected_calibration_error(probabilities, labels, 10), abs=1e-3
    )


def test_one_kind_of_answer_is_refused():
    with pytest.raises(CalibrationDataError, match="right in every row"):
        ece_decomposition([[0.9, 0.1]], [0])
