from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from calibrators import softmax
from calibrators.metrics import smooth_calibration_error
from tests.calibrators.two_classes import probabilities_of


def brute_force(confidence, correct, weight=None):
    """Sums reflected images of the kernel one by one and integrates on a fine grid."""
    weight = np.ones(len(confidence)) if weight is None else weight
    weight = weight / weight.sum()

    def error(sigma):
        points = (np.arange(5_000) + 0.5) / 5_000
        curve = np.zeros_like(points)
        for f, residual in zip(confidence, weight * (confidence - correct), strict=True):
            for image in (sign * f + 2 * shift for shift in range(-3, 4) for sign in (-1, 1)):
                curve += residual * np.exp(-0.5 * ((points - image) / sigma) ** 2)
        return np.abs(curve).mean() / (sigma * np.sqrt(2 * np.pi))

    return optimize.brentq(lambda sigma: error(sigma) - sigma, 1e-3, 1.0, xtol=1e-7)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("weighted", [False, True])
def test_by_brute_force_integration(seed, weighted):
    rng = np.random.default_rng(seed)
    confidence = rng.choice([0.0, 1.0, 0.5, rng.random(), rng.random()], 25) if seed % 2 else rng.random(25)
    event = rng.integers(0, 2, 25)
    weight = rng.uniform(0.1, 2, 25) if weighted else None
    found = smooth_calibration_error(probabilities_of(confidence), event, weight, positive=1)
    assert found == pytest.approx(brute_force(confidence, event, weight), abs=2e-6)


@pytest.mark.parametrize("edge", [0.0, 1.0])
def test_mass_on_an_edge_counts_in_full(edge):
    # All rows in one place: their spread mass is the mean residual whatever the width, on the edge as anywhere.
    event = np.array([1, 0, 0, 0, 0])
    for place in (edge, 0.5):
        found = smooth_calibration_error(probabilities_of(np.full(5, place)), event, positive=1)
        assert found == pytest.approx(abs(place - 0.2), abs=1e-6)


def test_edges_are_continuous():
    event = np.array([1, 0, 0, 0])
    on_edge = smooth_calibration_error(probabilities_of(np.array([0.0, 0.3, 0.0, 0.6])), event, positive=1)
    beside = smooth_calibration_error(probabilities_of(np.array([1e-9, 0.3, 1e-9, 0.6])), event, positive=1)
    assert on_edge == pytest.approx(beside, abs=1e-6)


def test_perfect_answers_score_zero():
    assert smooth_calibration_error([[1.0, 0.0], [0.0, 1.0]], [0, 1]) == 0


def test_everything_wrong_scores_one():
    assert smooth_calibration_error([[1.0, 0.0], [1.0, 0.0]], [1, 1]) == pytest.approx(1, abs=1e-9)


def test_small_widths_use_a_finer_grid():
    # 0.0007 off everywhere: the curve has one sign, so the error is the mean gap at every width.
    confidence = np.linspace(0.1, 0.9, 9).repeat(10_000)
    event = np.concatenate([np.arange(10_000) < round(10_000 * (p + 0.0007)) for p in np.linspace(0.1, 0.9, 9)])
    found = smooth_calibration_error(probabilities_of(confidence), event.astype(int), positive=1)
    assert found == pytest.approx(0.0007, abs=1e-7)


def test_top_labels_and_repeated_rows(world):
    logits, labels = world(300, 4, 2.0)
    probabilities, counts = softmax(logits), np.random.default_rng(0).integers(0, 3, 300)
    top = probabilities.max(axis=1)
    found = smooth_calibration_error(probabilities, labels)
    right = (probabilities.argmax(axis=1) == labels).astype(int)
    assert found == pytest.approx(smooth_calibration_error(probabilities_of(top), right, positive=1), abs=1e-9)
    repeated = smooth_calibration_error(np.repeat(probabilities, counts, axis=0), np.repeat(labels, counts))
    assert smooth_calibration_error(probabilities, labels, counts * 0.1) == pytest.approx(repeated, abs=1e-9)
