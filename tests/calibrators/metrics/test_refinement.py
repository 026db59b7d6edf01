from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from calibrators import CalibrationDataError, Temperature, softmax
from calibrators.metrics import refinement_aupr, refinement_auroc


@pytest.mark.parametrize("decimals", [1, 12])
def test_agrees_with_scikit_learn(decimals, world):
    logits, labels = world(600, 4, 1.5)
    probabilities = softmax(logits)
    first = np.round(probabilities.max(axis=1), decimals)  # coarse confidences tie
    pairs = np.stack([first, 1 - first], axis=1)
    wrong = (probabilities.argmax(axis=1) != labels).astype(int)
    predicted = np.zeros(600, int)
    for weight in (None, np.random.default_rng(0).uniform(0.1, 2, 600)):
        expected = roc_auc_score(1 - wrong, first, sample_weight=weight)
        assert refinement_auroc(pairs, wrong, weight, predicted=predicted) == pytest.approx(expected, abs=1e-12)
        expected = average_precision_score(1 - wrong, first, sample_weight=weight)
        assert refinement_aupr(pairs, wrong, weight, predicted=predicted) == pytest.approx(expected, abs=1e-12)
        expected = average_precision_score(wrong, -first, sample_weight=weight)
        found = refinement_aupr(pairs, wrong, weight, predicted=predicted, detect="wrong")
        assert found == pytest.approx(expected, abs=1e-12)


def test_by_counting_pairs():
    probabilities = np.array([[0.9, 0.1], [0.7, 0.3], [0.7, 0.3], [0.6, 0.4]])
    assert refinement_auroc(probabilities, [0, 0, 1, 1]) == (1 + 1 + 0.5 + 1) / 4


def test_two_class_temperature_leaves_it_as_it_was(world):
    logits, labels = world(500, 2, 2.0)
    calibrated = Temperature().fit(logits, labels).predict_proba(logits)
    assert refinement_auroc(calibrated, labels) == pytest.approx(refinement_auroc(softmax(logits), labels), abs=1e-12)


@pytest.mark.parametrize(("labels", "found"), [([0, 0], "right in every row"), ([1, 1], "wrong in every row")])
def test_one_kind_of_answer_has_no_refinement(labels, found):
    for metric in (refinement_auroc, refinement_aupr):
        with pytest.raises(CalibrationDataError, match=found):
            metric([[0.9, 0.1], [0.8, 0.2]], labels)


def test_what_to_detect_is_right_or_wrong():
    with pytest.raises(CalibrationDataError, match="detect"):
        refinement_aupr([[0.9, 0.1], [0.8, 0.2]], [0, 1], detect="all")
