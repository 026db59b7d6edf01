from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special
from sklearn.isotonic import IsotonicRegression
from sklearn.metrics import brier_score_loss, log_loss

from calibrators import CalibrationDataError, softmax
from calibrators.metrics import corp_decomposition, corp_reliability
from tests.calibrators.two_classes import probabilities_of


@pytest.mark.parametrize("positive", [None, 1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("score", ["brier", "log"])
def test_agrees_with_scikit_learn(positive, weighted, score, world):
    logits, labels = world(500, 3, 2.0)
    probabilities = softmax(logits)
    weight = np.random.default_rng(0).uniform(0.1, 2, 500) if weighted else None
    chance = probabilities.max(axis=1) if positive is None else probabilities[:, positive]
    event = probabilities.argmax(axis=1) == labels if positive is None else labels == positive
    best = IsotonicRegression(y_min=0, y_max=1).fit(chance, event, weight).predict(chance)
    flat = np.full(500, np.average(event, weights=weight))

    def mean(guess):
        if score == "brier":
            return brier_score_loss(event, guess, sample_weight=weight)
        return log_loss(event, np.clip(guess, 1e-15, 1 - 1e-15), sample_weight=weight)

    parts = corp_decomposition(probabilities, labels, score, weight, positive=positive)
    assert parts.score == pytest.approx(mean(chance), abs=1e-9)
    assert parts.miscalibration == pytest.approx(mean(chance) - mean(best), abs=1e-7)
    assert parts.discrimination == pytest.approx(mean(flat) - mean(best), abs=1e-7)
    assert parts.uncertainty == pytest.approx(mean(flat), abs=1e-9)
    assert parts.score == pytest.approx(parts.miscalibration - parts.discrimination + parts.uncertainty, abs=1e-12)
    curve = corp_reliability(probabilities, labels, weight, positive=positive, resamples=5)
    np.testing.assert_allclose(curve.frequency[np.searchsorted(curve.probability, chance)], best, atol=1e-9)
    assert curve.share.sum() == pytest.approx(1)


def test_a_monotone_map_of_the_probabilities_moves_only_miscalibration(world):
    logits, labels = world(800, 2, 1.0)
    one, other = (corp_decomposition(softmax(logits * scale), labels, positive=1) for scale in (1, 3))
    assert other.discrimination == pytest.approx(one.discrimination, abs=1e-12)
    assert other.uncertainty == pytest.approx(one.uncertainty, abs=1e-12)
    assert other.miscalibration > one.miscalibration


def test_a_broken_certainty_has_an_infinite_log_score():
    parts = corp_decomposition([[1.0, 0.0], [0.4, 0.6]], [1, 1], "log")
    assert parts.score == math.inf
    assert parts.miscalibration == math.inf
    assert corp_decomposition([[1.0, 0.0]], [0], "log").score == 0


@pytest.mark.parametrize(("rows", "weighted"), [(300, False), (300, True), (6000, False), (6000, True)])
def test_bands_hold_a_calibrated_curve_as_often_as_they_say(rows, weighted):
    rng = np.random.default_rng(rows)
    chance = special.expit(rng.normal(0, 2, rows))
    weight = rng.uniform(0.2, 2, rows) if weighted else None
    inside = np.zeros(rows)
    worlds = 60 if rows == 300 else 15
    for seed in range(worlds):
        labels = (rng.random(rows) < chance).astype(int)
        curve = corp_reliability(probabilities_of(chance), labels, weight, positive=1, resamples=200, seed=seed)
        inside += (curve.lower <= curve.frequency) & (curve.frequency <= curve.upper)
    assert 0.85 < inside.mean() / worlds < 0.96


def test_the_bands_are_reproducible_and_narrow_with_rows(world):
    few, many = (softmax(world(rows, 2)[0]) for rows in (200, 20_000))
    width = []
    for probabilities in (few, many):
        labels = np.arange(len(probabilities)) % 2
        curve = corp_reliability(probabilities, labels, positive=1, resamples=50)
        again = corp_reliability(probabilities, labels, positive=1, resamples=50)
        np.testing.assert_array_equal(curve.lower, again.lower)
        assert len(curve.lower) == len(curve.probability) == len(curve.upper)
        width.append(np.mean(curve.upper - curve.lower))
    assert width[1] < width[0] / 2


def test_options_are_checked():
    with pytest.raises(CalibrationDataError, match="score"):
        corp_decomposition([[0.5, 0.5]], [0], "sphere")
    for option in ({"level": 1.0}, {"resamples": 0}, {"seed": -1}):
        with pytest.raises(CalibrationDataError):
            corp_reliability([[0.5, 0.5]], [0], **option)
