import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit

from service.decisions.rows import ScoredRows
from service.errors import InputValueError
from service.monitoring.calibration import LOG_WEIGHTS, CalibrationMonitor, values


def monitor(**options: Any) -> CalibrationMonitor:
    return CalibrationMonitor(**{"floor": 1.0, "level": 0.05, "since": 0, **options})


def stated(probability: Any, positive: Any, **columns: Any) -> ScoredRows:
    p = np.atleast_1d(np.asarray(probability, np.float32))
    return ScoredRows(probability=p, score=p, positive=np.atleast_1d(np.asarray(positive, np.bool_)), **columns)


def feed(watch: CalibrationMonitor, rows: ScoredRows) -> CalibrationMonitor:
    start = watch.alarm.through
    watch.update(replace(rows, predicted_at=np.arange(start, start + len(rows))), through=start + len(rows))
    return watch


def test_the_capital_is_one() -> None:
    assert np.exp(LOG_WEIGHTS).sum() == pytest.approx(1.0)


@given(
    p=st.floats(0, 1)
    | st.sampled_from([0.0, 1e-30, 0.02, 0.5, 0.95, 0.98, float(np.float32(1) - np.float32(6e-8)), 1.0]),
    tolerance=st.sampled_from([0.001, 0.02, 0.1, 0.49]),
)
@settings(max_examples=300, deadline=None)
def test_no_rate_that_the_hypothesis_allows_gains_by_any_bet(p: float, tolerance: float) -> None:
    right, wrong = values(np.array([p]), tolerance)
    assert right.min() > -1
    assert wrong.min() > -1
    assert np.isfinite(right).all()
    assert np.isfinite(wrong).all()
    for rate in np.clip([p - tolerance, p, p + tolerance], 0, 1):
        scale = np.maximum(1.0, np.abs(right) + np.abs(wrong))
        assert ((rate * right + (1 - rate) * wrong) <= 1e-12 * scale).all()


def test_values_are_likelihood_ratios_against_the_nearest_allowed_rate() -> None:
    right, wrong = (table[0] for table in values(np.array([0.7]), 0.02))
    shifted = float(expit(logit(0.7) + 1.0))
    lowered = float(expit(logit(0.7) - 1.0))
    for curve, bound in ((shifted, 0.72), (lowered, 0.68)):
        found = np.isclose(right, curve / bound - 1) & np.isclose(wrong, (1 - curve) / (1 - bound) - 1)
        assert found.sum() == 2  # once for all p, once within 0.5 … 0.8
    # A shift of 1/8 stays within 0.02 at p = 0.9: there it does not bet.
    assert (values(np.array([0.9]), 0.02)[0] == 0).sum() > (values(np.array([0.7]), 0.02)[0] == 0).sum()


def test_within_the_tolerance_of_the_ends_nothing_is_bet_that_way() -> None:
    right, _ = values(np.array([0.99]), 0.02)
    assert (right <= 0).all()
    _, wrong = values(np.array([0.01]), 0.02)
    assert (wrong <= 0).all()


# Share, probability, how far the rate is from it, propensity: off in two regions, right in the mean over both.
P = [(0.5, 0.97, 0.0, 1.0), (0.15, 0.6, 0.3, 1.0), (0.15, 0.6, -0.3, 0.25), (0.2, 0.03, 0.0, 0.5)]


@pytest.mark.parametrize("off", [-0.02, 0.0, 0.02])
@pytest.mark.parametrize("missing", [(0.0, 0.0), (0.4, 0.0), (0.0, 0.4)])
def test_the_mean_does_not_grow_under_the_hypothesis(off: float, missing: tuple[float, float]) -> None:
    mean = 0.0
    for share, p, aside, propensity in P:
        p = float(np.float32(p))
        rate = p + off + aside
        for positive in (True, False):
            chance = share * (rate if positive else 1 - rate)
            for sought, comes in ((False, False), (True, True), (True, False)):
                lost = missing[positive]
                part = chance * (propensity * (1 - lost if comes else lost) if sought else 1 - propensity)
                row = stated(
                    p,
                    positive,
                    propensity=np.array([propensity]),
                    sought=np.array([sought]),
                    labelled=np.array([comes]),
                )
                mean += part * math.exp(feed(monitor(floor=0.25), row).alarm.log_e)
    assert mean <= 1 + 1e-12
    if missing == (0.0, 0.0):
        assert mean > 0.99


def test_which_rows_count() -> None:
    rows = stated(
        [0.9] * 6,
        [False] * 6,
        propensity=np.array([1.0, 0.5, 0.5, 0.2, math.nan, 0.0]),
        sought=np.array([True, True, False, True, True, False]),
        labelled=np.array([True, False, False, True, True, False]),
    )
    alarm = feed(monitor(floor=0.5), rows).alarm
    assert (alarm.rows, alarm.unlabelled) == (2, 1)
    alarm = feed(monitor(), stated([0.9] * 4, [False] * 4, group=np.array([5, 5, 6, 5]))).alarm
    assert alarm.rows == 2


def test_a_row_of_unknown_propensity_does_not_stand_for_its_group() -> None:
    rows = stated([0.9] * 2, [False] * 2, group=np.array([5, 5]), propensity=np.array([math.nan, 1.0]))
    assert feed(monitor(), rows).alarm.rows == 1


def test_a_label_that_stays_away_speaks_for_the_hypothesis_either_way() -> None:
    hidden = stated([0.6] * 300, [True] * 300, labelled=np.zeros(300, np.bool_), sought=np.ones(300, np.bool_))
    alarm = feed(monitor(), hidden).alarm
    assert (alarm.rows, alarm.unlabelled) == (300, 300)
    assert alarm.peak == 0.0


def test_a_group_whose_label_was_counted_does_not_count_again() -> None:
    watch = monitor()
    for returns in range(3):
        watch.update(
            stated([0.9] * 4, [False] * 4, group=np.arange(4), predicted_at=np.full(4, returns)), through=returns + 1
        )
        watch = CalibrationMonitor.from_dict(watch.to_dict())
    assert watch.alarm.rows == 4


def test_cohorts_and_storage_between_them_change_nothing() -> None:
    rng = np.random.default_rng(4)
    p = rng.random(3000).astype(np.float32)
    rows = stated(p, rng.random(3000) < expit(0.6 * logit(p.clip(1e-6, 1 - 1e-6))))
    whole = feed(monitor(), rows)
    cut = monitor()
    for start in range(0, 3000, 700):
        feed(cut, rows.take(slice(start, start + 700)))
        cut = CalibrationMonitor.from_dict(json.loads(json.dumps(cut.to_dict(), allow_nan=False)))
    assert cut.to_dict() == whole.to_dict()
    assert cut.alarm.fired_at is not None


def test_a_probability_out_of_range_is_refused_and_changes_nothing() -> None:
    watch = monitor()
    before = watch.to_dict()
    with pytest.raises(InputValueError) as caught:
        feed(watch, stated([0.5, 1.5], [True, True]))
    assert caught.value.where == "probability"
    assert watch.to_dict() == before


@pytest.mark.parametrize(
    "option", [{"tolerance": 0.0}, {"tolerance": 0.5}, {"floor": 0}, {"level": 1.0}, {"since": None}]
)
def test_options_that_make_no_sense_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(InputValueError) as caught:
        monitor(**option)
    assert caught.value.where == next(iter(option))


def test_another_monitors_document_is_refused() -> None:
    with pytest.raises(InputValueError) as caught:
        CalibrationMonitor.from_dict({**monitor().to_dict(), "kind": "certificate"})
    assert caught.value.expected == {"kind": "calibration", "version": 1}
