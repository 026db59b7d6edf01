"""Multicalibration: right in every cell of overlapping columns, harmless where nothing is wrong."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special

from calibrators import CalibrationDataError, CalibrationFitError, Multicalibration
from calibrators.cells import Cells

SHIFTS = {"a": 0.0, "b": 1.0, "c": -1.2}


def world(seed: int, rows: int, *, wrong: bool = True) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    """Scores that are right on average, and wrong by site and by age, which overlap."""
    rng = np.random.default_rng(seed)
    z = rng.normal(-1, 1.5, rows)
    site = rng.choice(list(SHIFTS), rows, p=[0.7, 0.2, 0.1])
    age = rng.uniform(18, 90, rows)
    truth = z + wrong * (np.array([SHIFTS[one] for one in site]) + np.where(age > 75, 0.5 * z, 0))
    labels = (rng.random(rows) < special.expit(truth)).astype(int)
    columns = {"site": site, "age": age, "noise": rng.choice(["x", "y"], rows)}
    return np.stack([np.zeros(rows), z], axis=1), labels, columns


@pytest.fixture(scope="module")
def fitted() -> Multicalibration:
    return Multicalibration("platt", rounds=40).fit(*world(1, 12_000))


def test_the_worst_cell_is_half_as_wrong_and_the_log_loss_falls(fitted: Multicalibration) -> None:
    logits, labels, columns = world(2, 30_000)
    cells = fitted.cells(logits, labels, columns)
    assert {cell.column for cell in cells} == {"site", "age", "noise"}
    assert max(cell.error for cell in cells) < max(cell.base_error for cell in cells) / 2
    own = np.arange(len(labels)), labels
    before, after = fitted.base_.predict_proba(logits)[own], fitted.predict_proba(logits, columns)[own]
    assert -np.log(after).mean() < -np.log(before).mean() - 0.02
    assert fitted.gain_ == pytest.approx(np.log(after).mean() - np.log(before).mean(), abs=0.01)


def test_scores_that_are_right_are_hardly_touched() -> None:
    """In 40 worlds: the held-out log loss never rises by more than what 40 rows know of one coefficient."""
    kept = 0
    for seed in range(40):
        logits, labels, columns = world(seed, 1_500, wrong=False)
        found = Multicalibration("platt", rounds=20).fit(logits, labels, columns)
        kept += found.rounds_ > 0
        logits, labels, columns = world(1000 + seed, 10_000, wrong=False)
        own = np.arange(len(labels)), labels
        before, after = found.base_.predict_proba(logits)[own], found.predict_proba(logits, columns)[own]
        assert np.mean(np.log(before) - np.log(after)) < 3e-3
    assert kept <= 12


def test_a_step_is_newtons_in_each_cell() -> None:
    """Shift and slope of a column with one cell against the gradient and Hessian by finite differences."""
    from calibrators.multicalibration import _RATE, _RIDGE, _best_step

    rng = np.random.default_rng(3)
    z, weight = rng.normal(size=500), rng.uniform(0.5, 2, 500)
    labels = (rng.random(500) < special.expit(2 * z + 1)).astype(np.int64)
    cell = Cells("all", np.empty(0), None)
    step = _best_step(z, labels, weight, [cell], [np.ones(500, np.int64)])
    assert step is not None

    def loss(shift: float, slope: float) -> float:
        moved = z + shift + slope * (z - step.centre[1])
        return float(weight @ (np.logaddexp(0, moved) - labels * moved))

    h = 1e-4
    for move, direction in ((step.shift[1], (1, 0)), (step.slope[1], (0, 1))):
        up, down = (loss(*(sign * h * one for one in direction)) for sign in (1, -1))
        gradient, curvature = (up - down) / (2 * h), (up - 2 * loss(0, 0) + down) / h**2
        assert move == pytest.approx(-_RATE * gradient / (curvature + _RIDGE), rel=1e-4)
    mixed = (loss(h, h) - loss(h, -h) - loss(-h, h) + loss(-h, -h)) / (4 * h**2)
    assert mixed == pytest.approx(0, abs=1e-4 * len(z))  # around the weighted mean, one does not see the other


def test_a_weight_counts_as_so_many_rows() -> None:
    logits, labels, columns = world(4, 3_000)
    twice = {name: np.concatenate([values, values]) for name, values in columns.items()}
    doubled = np.concatenate([logits, logits]), np.concatenate([labels, labels])
    group = np.tile(np.arange(3_000), 2)
    own = Multicalibration("platt", rounds=5).fit(logits, labels, columns, sample_weight=np.full(3_000, 2.0))
    both = Multicalibration("platt", rounds=5).fit(*doubled, twice, groups=group)
    assert own.rounds_ == 5 == both.rounds_
    # The ridge weighs less against twice as many rows.
    np.testing.assert_allclose(
        own.predict_proba(logits, columns), both.predict_proba(logits, columns), atol=0.02, rtol=0
    )


def test_a_row_of_weight_0_is_like_none() -> None:
    logits, labels, columns = world(6, 6_000)
    weight = np.random.default_rng(6).choice([0.0, 1.0, 2.0], 6_000, p=[0.6, 0.3, 0.1])
    labels, group, kept = np.where(weight > 0, labels, 1 - labels), np.arange(6_000) // 2, weight > 0
    present = {name: values[kept] for name, values in columns.items()}

    every = Multicalibration("auto").fit(logits, labels, columns, group, weight)
    some = Multicalibration("auto").fit(logits[kept], labels[kept], present, group[kept], weight[kept])
    assert every.to_dict() == some.to_dict()
    assert every.rounds_ > 0
    cells = every.cells(logits, labels, columns, weight)
    assert cells == every.cells(logits[kept], labels[kept], present, weight[kept])


def test_a_document_restores_it_exactly(fitted: Multicalibration) -> None:
    logits, _, columns = world(5, 300)
    document = json.loads(json.dumps(fitted.to_dict()))
    again = Multicalibration.from_dict(document)
    assert again.fingerprint() == fitted.fingerprint()
    assert again.rounds_ == fitted.rounds_ > 0
    np.testing.assert_array_equal(again.predict_proba(logits, columns), fitted.predict_proba(logits, columns))


def test_missing_and_unknown_values_get_what_all_rows_get(fitted: Multicalibration) -> None:
    logits, _, _ = world(6, 4)
    strange = {"site": [None, "d", "a", "b"], "age": [np.nan, 30, None, 40], "noise": ["x"] * 4}
    probabilities = fitted.predict_proba(logits, strange)
    assert np.isfinite(probabilities).all()
    assert np.allclose(probabilities.sum(axis=1), 1)
    one = {**strange, "site": ["zzz"] * 4}
    other = {**strange, "site": [None] * 4, "age": [None] * 4}
    one["age"] = [np.nan] * 4
    np.testing.assert_array_equal(fitted.predict_proba(logits, one), fitted.predict_proba(logits, other))


def test_rows_of_a_group_share_a_fold() -> None:
    """Labels that only repeat within groups promise a gain that new groups do not have."""
    rng = np.random.default_rng(7)
    shop = np.repeat(np.arange(60), 40)
    z = rng.normal(size=len(shop))
    labels = (rng.random(60)[shop] < special.expit(z)).astype(int)  # one draw per shop
    columns = {"shop": np.char.add("s", shop.astype(str))}
    logits = np.stack([np.zeros_like(z), z], axis=1)
    assert Multicalibration("platt", least_rows=20).fit(logits, labels, columns).rounds_ > 0
    assert Multicalibration("platt", least_rows=20).fit(logits, labels, columns, groups=shop).rounds_ == 0


LOGITS, LABELS, COLUMNS = world(8, 200)


def test_an_impossible_class_has_probability_0(fitted: Multicalibration) -> None:
    assert fitted.rounds_ > 0
    logits = np.array([[0.0, -np.inf], [-np.inf, 0.0], [0.0, 1.0]])
    columns = {name: values[:3] for name, values in COLUMNS.items()}
    np.testing.assert_array_equal(fitted.predict_proba(logits, columns)[:2], np.eye(2))


def test_without_rounds_the_base_answers_alone() -> None:
    alone = Multicalibration("platt", least_rows=500).fit(LOGITS, LABELS, {"noise": COLUMNS["noise"]})
    assert alone.rounds_ == 0
    predicted = alone.predict_proba(LOGITS, {"noise": COLUMNS["noise"]})
    np.testing.assert_allclose(predicted, alone.base_.predict_proba(LOGITS), rtol=1e-12)


def test_zeros_of_the_base_are_no_certainties() -> None:
    found = Multicalibration("isotonic", least_rows=20).fit(LOGITS, LABELS, COLUMNS)
    assert (found.base_.predict_proba(LOGITS) == 0).any()
    assert (found.predict_proba(LOGITS, COLUMNS) > 0).all()


def test_a_data_frame_is_as_good_as_named_columns(fitted: Multicalibration) -> None:
    frame = pd.DataFrame(COLUMNS)
    ours = Multicalibration("platt", least_rows=20)
    assert ours.fit(LOGITS, LABELS, frame).fingerprint() == ours.fit(LOGITS, LABELS, COLUMNS).fingerprint()
    frame.loc[:9, "site"] = None  # which pandas keeps as NaN
    texts = np.where(np.arange(200) < 10, None, COLUMNS["site"])
    expected = fitted.predict_proba(LOGITS, {**COLUMNS, "site": texts})
    np.testing.assert_array_equal(fitted.predict_proba(LOGITS, frame), expected)
    nothing = fitted.predict_proba(LOGITS, {**COLUMNS, "site": [None] * 200})
    np.testing.assert_array_equal(fitted.predict_proba(LOGITS, frame.assign(site=np.nan)), nothing)
    singles = np.array([np.float32("nan"), *COLUMNS["site"][1:]], np.object_)
    np.testing.assert_array_equal(
        fitted.predict_proba(LOGITS, {**COLUMNS, "site": singles})[1:], fitted.predict_proba(LOGITS, COLUMNS)[1:]
    )


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"columns": {}}, "columns"),
        ({"columns": pd.DataFrame()}, "columns"),
        ({"columns": [1.0] * 200}, "columns"),
        ({"columns": pd.DataFrame(np.ones((200, 2)), columns=["a", "a"])}, "columns"),
        ({"columns": {"site": ["a", 1.0] * 100}}, "columns['site']"),
        ({"columns": {"age": [1.0]}}, "columns['age']"),
        ({"columns": {"age": [np.inf] * 200}}, "columns['age'][0]"),
        ({"columns": {"age": [1, "a"] * 100}}, "columns['age']"),
        ({"columns": {"age": [True] * 200}}, "columns['age']"),
        ({"columns": {"age": 5}}, "columns['age']"),
        ({"logits": np.zeros((200, 3))}, "logits"),
        ({"labels": np.full(200, 2)}, "labels[0]"),
        ({"sample_weight": [-1] * 200}, "sample_weight[0]"),
    ],
)
def test_bad_input_is_named(changes: dict[str, Any], where: str) -> None:
    given: dict[str, Any] = {"logits": LOGITS, "labels": LABELS, "columns": COLUMNS} | changes
    with pytest.raises(CalibrationDataError) as caught:
        Multicalibration("platt").fit(**given)
    assert caught.value.where == where


def test_a_prediction_without_a_column_or_with_another_kind_is_refused(fitted: Multicalibration) -> None:
    with pytest.raises(CalibrationDataError, match="'noise' too"):
        fitted.predict_proba(LOGITS, {"site": COLUMNS["site"], "age": COLUMNS["age"]})
    with pytest.raises(CalibrationDataError, match="texts, as in the fit"):
        fitted.predict_proba(LOGITS, {**COLUMNS, "site": COLUMNS["age"]})
    with pytest.raises(CalibrationFitError, match="not fitted yet"):
        Multicalibration().predict_proba(LOGITS, COLUMNS)
    with pytest.raises(CalibrationDataError, match="rounds"):
        Multicalibration(rounds=0)


@pytest.mark.parametrize("field", ["columns", "steps", "base", "gain"])
def test_a_damaged_document_is_refused(fitted: Multicalibration, field: str) -> None:
    document = fitted.to_dict()
    for damaged in ({**document, field: None}, {name: one for name, one in document.items() if name != field}):
        with pytest.raises(CalibrationDataError):
            Multicalibration.from_dict(damaged)
    steps = [{**document["steps"][0], "shift": [0.0]}]
    with pytest.raises(CalibrationDataError, match="shift"):
        Multicalibration.from_dict({**document, "steps": steps})
