from __future__ import annotations

import numpy as np
import pytest

from calibrators import CalibrationDataError, CalibrationError, Temperature

LOGITS = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.5]])


@pytest.mark.parametrize(
    ("labels", "where"),
    [
        ([0, 1], "labels"),
        ([[0], [1], [0]], "labels"),
        ([0, 1, 2], "labels[2]"),
        ([0, -1, 0], "labels[1]"),
        ([0.0, 1.0, 0.0], "labels"),
        ([True, False, True], "labels"),
        (["a", "b", "c"], "labels"),
    ],
)
def test_bad_labels_are_refused_with_what_was_found(labels, where):
    with pytest.raises(CalibrationDataError) as caught:
        Temperature().fit(LOGITS, labels)
    assert caught.value.where == where
    assert caught.value.found in str(caught.value)
    assert caught.value.expected in str(caught.value)


@pytest.mark.parametrize(
    ("weight", "where"),
    [
        ([1.0, 1.0], "sample_weight"),
        ([1.0, -1.0, 1.0], "sample_weight[1]"),
        ([1.0, np.nan, 1.0], "sample_weight[1]"),
        ([1.0, np.inf, 1.0], "sample_weight[1]"),
        ([1.0, 1e101, 1.0], "sample_weight[1]"),
        ([1.0, 1e-101, 1.0], "sample_weight[1]"),
        ([0.0, 0.0, 0.0], "sample_weight"),
        (["a", "b", "c"], "sample_weight"),
    ],
)
def test_bad_weights_are_refused(weight, where):
    with pytest.raises(CalibrationDataError) as caught:
        Temperature().fit(LOGITS, [0, 1, 0], weight)
    assert caught.value.where == where


def test_no_rows_are_refused():
    with pytest.raises(CalibrationError, match="at least one row"):
        Temperature().fit(np.empty((0, 3)), np.empty(0, np.int64))


def test_integer_types_of_all_sizes_are_labels():
    for dtype in (np.uint8, np.int16, np.uint64, np.int64):
        assert Temperature().fit(LOGITS, np.array([0, 1, 1], dtype)).classes_ == 2


def test_extended_precision_is_refused():
    with pytest.raises(CalibrationDataError, match="Wrong type"):
        Temperature().fit(LOGITS.astype(np.longdouble), [0, 1, 0])
