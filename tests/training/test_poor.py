"""What makes a trained model useless."""

from __future__ import annotations

import numpy as np
import pytest

from bundle import LabelledLogits, Reference
from calibrators import CALIBRATORS
from training.poor import poor


def reference(logits: np.ndarray, labels: np.ndarray) -> Reference:
    third = len(labels) // 3
    cuts = [slice(0, third), slice(third, 2 * third), slice(2 * third, None)]
    return Reference(*[LabelledLogits(logits[cut].astype(np.float32), labels[cut]) for cut in cuts])


def problems(logits: np.ndarray, labels: np.ndarray, calibrator: str) -> list[str]:
    rows = reference(logits, labels)
    return poor(rows, CALIBRATORS[calibrator]().fit(rows.fit.logits, rows.fit.labels))


RANDOM = np.random.default_rng(0)
LABELS = RANDOM.integers(0, 3, 600)
GOOD = 2.0 * np.eye(3)[LABELS] + RANDOM.normal(size=(600, 3))


def test_a_useful_model_has_no_problem() -> None:
    assert problems(GOOD, LABELS, "temperature") == []


def test_equal_scores_are_a_collapse() -> None:
    assert "collapsed" in problems(np.tile([1.0, 2.0, 3.0], (600, 1)) + np.arange(600)[:, None], LABELS, "identity")[0]


def test_scores_without_skill_are_no_better_than_the_frequencies() -> None:
    (told,) = problems(RANDOM.normal(size=(600, 3)), LABELS, "identity")
    assert "no better than the class frequencies" in told


@pytest.mark.parametrize("calibrator", ["temperature", "ensemble_temperature"])
def test_a_temperature_at_its_bound_is_a_problem(calibrator: str) -> None:
    told = problems(0.001 * np.eye(3)[LABELS], LABELS, calibrator)
    assert any("at its lower bound, 0.05: the model makes no errors on the fit rows" in each for each in told)


def test_a_temperature_at_its_upper_bound_says_that_the_scores_carry_no_confidence() -> None:
    told = problems(30 * RANDOM.normal(size=(600, 3)), LABELS, "temperature")
    assert any("at its upper bound, 20: the scores carry no confidence" in each for each in told)


def test_one_of_two_classes_without_held_out_rows_is_a_problem() -> None:
    logits, labels = np.stack([np.zeros(600), RANDOM.normal(size=600)], axis=1), np.zeros(600, np.int64)
    labels[590:] = 1  # gate rows
    told = problems(logits, labels, "identity")
    assert [part for part in ("fit", "certify") if any(f"All 200 {part} rows have one" in each for each in told)] == [
        "fit",
        "certify",
    ]
