from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss

from calibrators import softmax
from calibrators.metrics import (
    accuracy,
    brier_decomposition,
    brier_score,
    log_losses,
    negative_log_likelihood,
    squared_errors,
)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_agrees_with_scikit_learn_and_the_definition(classes, world):
    logits, labels = world(400, classes, 1.5)
    probabilities = softmax(logits)
    weight = np.random.default_rng(0).uniform(0.1, 2, 400)
    onehot = np.eye(classes)[labels]
    for weights in (None, weight):
        nll = negative_log_likelihood(probabilities, labels, weights)
        assert nll == pytest.approx(
            log_loss(labels, probabilities, sample_weight=weights, labels=range(classes)), abs=1e-12
        )
        expected = np.average(((probabilities - onehot) ** 2).sum(axis=1), weights=weights)
        assert brier_score(probabilities, labels, weights) == pytest.approx(expected, abs=1e-12)
        right = accuracy_score(labels, probabilities.argmax(axis=1), sample_weight=weights)
        assert accuracy(probabilities, labels, weights) == pytest.approx(right, abs=1e-12)


def test_a_probability_of_zero_is_not_clipped():
    assert negative_log_likelihood([[1.0, 0.0]], [1]) == math.inf
    assert negative_log_likelihood([[1.0, 0.0], [0.5, 0.5]], [1, 0], [0.0, 1.0]) == pytest.approx(math.log(2))
    certain = negative_log_likelihood([[1.0, 0.0]], [0])
    assert certain == 0
    assert math.copysign(1, certain) == 1


def test_losses_of_each_row(world):
    logits, labels = world(50, 3)
    probabilities = softmax(logits)
    assert log_losses(probabilities, labels).mean() == pytest.approx(negative_log_likelihood(probabilities, labels))
    assert squared_errors(probabilities, labels).mean() == pytest.approx(brier_score(probabilities, labels))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 60),
    classes=st.integers(2, 4),
    scheme=st.sampled_from(["width", "mass"]),
)
def test_the_parts_add_up(seed, rows, classes, scheme):
    rng = np.random.default_rng(seed)
    probabilities = softmax(rng.normal(0, 2, (rows, classes)))
    labels = rng.integers(0, classes, rows)
    parts = brier_decomposition(probabilities, labels, 10, scheme)
    assert parts.score == pytest.approx(brier_score(probabilities, labels), abs=1e-12)
    assert parts.calibration + parts.refinement + parts.within_bins == pytest.approx(parts.score, abs=1e-12)
    assert parts.calibration >= 0
    assert parts.refinement >= 0


def test_parts_by_hand():
    # All rows at (0.8, 0.2), half of them of each class: calibration 2 · 0.3², refinement 2 · ¼, nothing within bins.
    parts = brier_decomposition([[0.8, 0.2]] * 4, [0, 0, 1, 1])
    assert parts.calibration == pytest.approx(0.18)
    assert parts.refinement == pytest.approx(0.5)
    assert parts.within_bins == pytest.approx(0.0)


def test_within_bins_vanishes_as_bins_become_fine(world):
    logits, labels = world(2000, 3, 1.5)
    probabilities = np.round(softmax(logits) * 64) / 64
    probabilities[:, 0] += 1 - probabilities.sum(axis=1)
    assert brier_decomposition(np.clip(probabilities, 0, 1), labels, 512).within_bins == pytest.approx(0, abs=1e-12)


def test_accuracy_of_given_predictions():
    assert accuracy([[0.4, 0.6]] * 2, [0, 0], predicted=[0, 1]) == 0.5
