"""What sample weights mean: shares of importance by default, rows seen again as frequencies; everywhere alike."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from calibrators import CALIBRATORS, CalibrationDataError, metrics, softmax

# What counts rows, or has a prior, a penalty or a number of folds that rows outweigh.
COUNTING = {
    "matrix", "dirichlet", "platt", "beta", "histogram", "structured_vector", "structured_matrix", "venn_abers",
    "spline", "bbq", "enir", "prior_shift", "auto",
}  # fmt: skip
FREQUENCIES = [name for name, kind in CALIBRATORS.items() if "weight_kind" in inspect.signature(kind).parameters]


def rows_with_counts(world, classes, rows=300):
    logits, labels = world(rows, classes, 1.5)
    return logits, labels, np.random.default_rng(2).integers(0, 4, rows)


@pytest.mark.parametrize("name", [name for name in CALIBRATORS if name not in COUNTING])
@pytest.mark.parametrize("classes", [2, 3])
def test_integer_weights_equal_repeated_rows(name, classes, world):
    logits, labels, counts = rows_with_counts(world, classes)
    weighted = CALIBRATORS[name]().fit(logits, labels, counts)
    repeated = CALIBRATORS[name]().fit(np.repeat(logits, counts, axis=0), np.repeat(labels, counts))
    np.testing.assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), atol=2e-6)


@pytest.mark.parametrize("name", [name for name in FREQUENCIES if name != "auto"])
@pytest.mark.parametrize("classes", [2, 3])
def test_frequencies_are_rows_seen_again(name, classes, world):
    logits, labels, counts = rows_with_counts(world, classes)
    weighted = CALIBRATORS[name](weight_kind="frequency").fit(logits, labels, counts)
    repeated = CALIBRATORS[name]().fit(np.repeat(logits, counts, axis=0), np.repeat(labels, counts))
    np.testing.assert_allclose(weighted.predict_proba(logits), repeated.predict_proba(logits), atol=2e-6)


@pytest.mark.parametrize("name", FREQUENCIES)
@pytest.mark.parametrize("frequency", [1.5, 2.0**31 + 1])
def test_frequencies_are_whole_numbers_that_can_be(name, frequency, world):
    logits, labels, counts = rows_with_counts(world, 3)
    broken = counts.astype(float)
    broken[7] = frequency
    messages = []
    for refused in (
        lambda: CALIBRATORS[name](weight_kind="frequency").fit(logits, labels, broken),
        lambda: metrics.calibration_test(softmax(logits), labels, sample_weight=broken, weight_kind="frequency"),
    ):
        with pytest.raises(CalibrationDataError, match=r"sample_weight\[7\]") as caught:
            refused()
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("name", FREQUENCIES)
def test_the_weight_kind_is_kept_and_another_is_refused(name, world):
    logits, labels, counts = rows_with_counts(world, 3)
    calibrator = CALIBRATORS[name](weight_kind="frequency").fit(logits, labels, counts)
    assert calibrator.to_dict()["weight_kind"] == "frequency"
    assert CALIBRATORS[name].from_dict(calibrator.to_dict()).weight_kind == "frequency"
    with pytest.raises(CalibrationDataError, match="weight_kind"):
        CALIBRATORS[name](weight_kind="rows")


@pytest.mark.parametrize("name", FREQUENCIES)
def test_documents_of_before_there_were_weight_kinds_are_read(name, world):
    logits, labels, counts = rows_with_counts(world, 3)
    calibrator = CALIBRATORS[name]().fit(logits, labels, counts)
    document = calibrator.to_dict()
    earlier = {field: value for field, value in document.items() if field != "weight_kind"}
    assert CALIBRATORS[name].from_dict(earlier).to_dict() == document
    with pytest.raises(CalibrationDataError, match="weight_kind"):
        CALIBRATORS[name].from_dict({**document, "weight_kind": None})


def test_the_debiased_error_stays_unbiased_under_unequal_weights():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        chance = rng.uniform(0.5, 1, 400)
        wrong = (rng.random(400) >= chance).astype(int)
        weight = rng.exponential(size=400)
        pair = np.stack([chance, 1 - chance], axis=1)
        found.append(metrics.debiased_calibration_error(pair, wrong, sample_weight=weight))
    # Zero, the truth, within three standard errors; the noise of equal weights would leave some ten.
    assert abs(np.mean(found)) < 3 * np.std(found) / 20
