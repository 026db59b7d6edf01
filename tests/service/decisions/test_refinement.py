"""The refinement AUROC of both sides, and the coverage of its intervals."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr

from calibrators import metrics
from service.decisions.refinement import compare_refinement


def world(
    rng: np.random.Generator, groups: int, size: int, shift: float
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.int64]]:
    """Scores N(shift, 1) of right answers and N(0, 1) of wrong ones; rows of a group share half of their variance.

    All rows of a group are right or all wrong, so that the truth is Φ(shift/√2) for rows of different groups, and
    nearly so for all.
    """
    right = np.repeat(rng.random(groups) < 0.7, size)
    score = np.sqrt(0.5) * (np.repeat(rng.standard_normal(groups), size) + rng.standard_normal(groups * size))
    return ndtr(score + shift * right), right, np.repeat(np.arange(groups), size)


@pytest.mark.parametrize(("groups", "size", "shift"), [(200, 1, 1.0), (600, 1, 2.5), (200, 4, 1.0)])
def test_intervals_cover(groups: int, size: int, shift: float) -> None:
    rng, truth = np.random.default_rng(groups + size), ndtr(shift / np.sqrt(2))
    covered = []
    for _ in range(500):
        confidence, right, group = world(rng, groups, size, shift)
        blurred = ndtr((np.log(confidence / (1 - confidence)) + 0.7 * rng.standard_normal(len(right))) / 2)
        found = compare_refinement((blurred, right), (confidence, right), group)
        assert found.interval_after is not None
        assert found.difference_interval is not None
        covered.append(found.interval_after[0] <= truth <= found.interval_after[1])
    assert 0.92 <= np.mean(covered) <= 0.98  # 0.95, and three standard errors


def test_the_interval_of_the_difference_covers() -> None:
    rng, covered = np.random.default_rng(3), []
    for _ in range(500):
        right = rng.random(500) < 0.7
        score = rng.standard_normal(500) + 1.5 * right
        noisy = score + rng.standard_normal(500)  # unit variance more: the truth is Φ(1.5/√4)
        found = compare_refinement((ndtr(noisy / 2), right), (ndtr(score / 2), right), np.arange(500))
        truth = ndtr(1.5 / np.sqrt(2)) - ndtr(1.5 / 2)
        assert found.difference_interval is not None
        covered.append(found.difference_interval[0] <= truth <= found.difference_interval[1])
    assert 0.92 <= np.mean(covered) <= 0.98  # 0.95, and three standard errors


def test_the_area_is_that_of_the_metric_ties_included() -> None:
    rng = np.random.default_rng(5)
    confidence = rng.integers(11, 20, 400) / 20
    right = rng.random(400) < confidence
    probabilities = np.stack([confidence, 1 - confidence], axis=1)
    found = compare_refinement((confidence, right), (confidence**2, right), np.arange(400))
    assert found.before == pytest.approx(metrics.refinement_auroc(probabilities, np.where(right, 0, 1)))
    assert found.before == found.after
    assert found.difference_interval == (0.0, 0.0)  # the order is the same


def test_where_nothing_can_be_told_there_is_no_interval() -> None:
    confidence, group = np.linspace(0.5, 1, 100), np.arange(100)
    all_right = np.ones(100, dtype=bool)
    assert compare_refinement((confidence, all_right), (confidence, all_right), group).before is None
    few = confidence > 0.6  # wrong in 20 rows
    assert compare_refinement((confidence, few), (confidence, few), group).interval_before is None
