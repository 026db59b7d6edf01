from __future__ import annotations

import numpy as np
import pytest

from calibrators import (
    Auto,
    CalibrationDataError,
    CalibrationError,
    Histogram,
    ScalingBinning,
    StructuredMatrix,
    StructuredVector,
    Temperature,
    metrics,
    softmax,
)

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


RAGGED = [[0.0, 1.0], [2.0]]


def test_lists_of_unequal_lengths_are_refused():
    calls = {
        "logits": [
            lambda: Temperature().fit(RAGGED, [0, 1]),
            lambda: softmax(RAGGED),
        ],
        "labels": [lambda: Temperature().fit(LOGITS, [[0], [0, 1], 1])],
        "sample_weight": [lambda: Temperature().fit(LOGITS, [0, 1, 0], RAGGED)],
        "groups": [lambda: Auto().fit_grouped(LOGITS, [0, 1, 0], RAGGED)],
        "probabilities": [lambda: metrics.brier_score(RAGGED, [0, 1])],
    }
    for where, wrong in calls.items():
        for call in wrong:
            with pytest.raises(CalibrationDataError, match="Wrong shape") as caught:
                call()
            assert caught.value.where == where


@pytest.mark.parametrize(
    ("groups", "where"),
    [
        (["a", None, "b"], "groups[1]"),
        ([1, 2, 2.5], "groups[2]"),
        ([0.0, 1.0, 1.0], "groups[0]"),
        (np.array([0.0, np.nan, 1.0]), "groups[0]"),
        ([True, False, True], "groups[0]"),
        ([b"a", b"b", b"c"], "groups[0]"),
        (["a", "b"], "groups"),
        (3, "groups"),
    ],
)
def test_groups_are_strings_or_integers(groups, where):
    probabilities, labels = softmax(LOGITS), [0, 1, 0]
    for call in (
        lambda: Auto().fit_grouped(LOGITS, labels, groups),
        lambda: metrics.paired_interval([1.0, 2.0, 3.0], [0.0, 1.0, 1.0], groups=groups),
        lambda: metrics.bootstrap_interval(metrics.brier_score, probabilities, labels, groups=groups),
    ):
        with pytest.raises(CalibrationDataError) as caught:
            call()
        assert caught.value.where == where


def test_groups_are_equal_where_value_and_type_are():
    losses = np.arange(6.0), np.zeros(6)
    expected = metrics.paired_interval(*losses, groups=[0, 0, 1, 1, 2, 2])
    for groups in (["a", "a", "b", "b", "c", "c"], [1, 1, "1", "1", 2, 2], np.array([9, 9, 4, 4, 5, 5], np.uint8)):
        assert metrics.paired_interval(*losses, groups=groups) == expected


@pytest.mark.parametrize("bins", [0, -1, 2.0, "7", True, None, 10**30, 10**400, 1_000_001])
def test_bins_are_a_number_of_them(bins):
    probabilities, labels = softmax(LOGITS), [0, 1, 0]
    for call in (
        lambda: Histogram(bins=bins),
        lambda: ScalingBinning(bins=bins),
        lambda: metrics.expected_calibration_error(probabilities, labels, bins),
        lambda: metrics.total_variation_calibration_error(probabilities, labels, bins=bins),
    ):
        with pytest.raises(CalibrationDataError) as caught:
            call()
        assert caught.value.where == "bins"


@pytest.mark.parametrize("level", ["a", None, True, 0, 1, 1.5, np.nan, [0.9]])
def test_a_level_is_inside_0_and_1(level):
    with pytest.raises(CalibrationDataError, match="level"):
        metrics.paired_interval([1.0, 2.0], [0.0, 0.0], level=level)


@pytest.mark.parametrize("scheme", ["mas", None, True, ["mass"], np.array(["mass", "width"])])
def test_a_choice_is_one_of_those_named(scheme):
    with pytest.raises(CalibrationDataError, match="one of 'width', 'mass'"):
        Histogram(scheme=scheme)


def test_a_number_too_long_to_write_is_refused_all_the_same():
    with pytest.raises(CalibrationDataError, match="too long to write"):
        Histogram(bins=10**5000)


@pytest.mark.parametrize("resamples", [0, 2.5, 10_000_001, 10**30, 10**400])
def test_resamples_are_a_number_of_them(resamples):
    probabilities, labels = softmax(LOGITS), [0, 1, 0]
    for call in (
        lambda: metrics.calibration_test(probabilities, labels, resamples=resamples),
        lambda: metrics.corp_reliability(probabilities, labels, resamples=resamples),
        lambda: metrics.kernel_calibration_test(probabilities, labels, resamples=resamples),
        lambda: metrics.bootstrap_interval(metrics.brier_score, probabilities, labels, resamples=resamples),
    ):
        with pytest.raises(CalibrationDataError) as caught:
            call()
        assert caught.value.where == "resamples"


@pytest.mark.parametrize("strength", [-1, np.inf, np.nan, "1", None, True, 10**400])
def test_a_penalty_is_a_number_that_float64_holds(strength):
    for kind in (StructuredVector, StructuredMatrix):
        with pytest.raises(CalibrationDataError, match="strength"):
            kind(strength=strength)


@pytest.mark.parametrize("losses", ["ab", RAGGED, [None, None], [1j, 2], [True, False], [[1.0, 2.0]], None])
def test_losses_are_numbers(losses):
    for one, other, where in ((losses, [1.0, 2.0], "first"), ([1.0, 2.0], losses, "second")):
        with pytest.raises(CalibrationDataError) as caught:
            metrics.paired_interval(one, other)
        assert caught.value.where == where


@pytest.mark.parametrize("metric", [None, "brier_score", [], {}, len, metrics.expected_calibration_error])
def test_what_has_no_interval_is_refused(metric):
    with pytest.raises(CalibrationDataError, match="metric"):
        metrics.bootstrap_interval(metric, softmax(LOGITS), [0, 1, 0])
