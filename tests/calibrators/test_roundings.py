"""Scores of a fit that come back with other roundings, say from another processor or as float32."""

from __future__ import annotations

import numpy as np
import pytest

from calibrators import CALIBRATORS, Vector, VennAbers, logits_from_probabilities


# Not isotonic_multiclass: it compares the probabilities of both classes, whose equal votes are already rounded apart.
@pytest.mark.parametrize("name", sorted(CALIBRATORS.keys() - {"isotonic_multiclass"}))
@pytest.mark.parametrize(
    "votes", [np.random.default_rng(2).integers(0, 11, 400) / 10, np.random.default_rng(3).random(400)]
)
def test_another_rounding_of_a_score_hardly_changes_a_probability(name: str, votes: np.ndarray) -> None:
    labels = (np.random.default_rng(0).random(400) < 0.1 + 0.8 * votes).astype(int)
    logits = logits_from_probabilities(np.stack([1 - votes, votes], axis=1))
    calibrator = CALIBRATORS[name]().fit(logits, labels)
    expected = calibrator.predict_proba(logits)
    others = [logits.astype(np.float32), np.nextafter(logits, 0)]
    if name not in ("vector", "matrix"):  # which read the height of the logits, too
        others += [logits + 0.3, logits - 1e3]
    for other in others:
        np.testing.assert_allclose(calibrator.predict_proba(other), expected, atol=1e-4)


@pytest.mark.parametrize("height", [0.1, 3.0, 1e9, 1e-310])
def test_logits_that_do_not_vary_teach_the_label_frequencies(height: float) -> None:
    labels = [0, 1, 2, 0, 1, 0, 0, 1, 0, 0]
    logits = np.tile(np.array([3.3, 1.1, 0.7]) * height, (10, 1))
    for weight in (None, np.full(10, 0.3)):
        calibrator = Vector().fit(logits, labels, weight)
        np.testing.assert_allclose(calibrator.predict_proba(logits[:1]), [[0.6, 0.3, 0.1]], atol=1e-3)
        assert np.abs(calibrator.weights_).max() < 10 or height < 1


def test_a_large_common_height_costs_nothing() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (500, 3))
    labels = (logits / 1.5 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    plain = Vector().fit(logits, labels).predict_proba(logits)
    np.testing.assert_allclose(Vector().fit(logits + 1e9, labels).predict_proba(logits + 1e9), plain, atol=1e-5)


def test_numbers_near_the_end_of_their_range_fit() -> None:
    logits = np.full((4, 2), 1e300)
    np.testing.assert_allclose(Vector().fit(logits, [1, 0, 1, 0]).predict_proba(logits), 0.5)


@pytest.mark.parametrize("gap", [1, 2, 3, 4])
def test_the_two_probabilities_stay_in_order_between_close_scores(gap: int) -> None:
    low = np.float32(20.0)
    scores = [low]
    for _ in range(gap):
        scores.append(np.nextafter(scores[-1], np.float32(21)))
    margins = np.repeat([low, scores[-1]], 50)
    logits = np.stack([np.zeros(100, np.float32), margins], axis=1)
    fitted = VennAbers().fit(logits, np.repeat([0, 1], 50))
    between = np.linspace(float(low), float(scores[-1]), 8 * gap + 1)
    lower, upper = fitted.bounds(np.stack([np.zeros_like(between), between], axis=1))[:, :, 1]
    assert (lower <= upper).all()
