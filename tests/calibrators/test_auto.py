from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import special

from calibrators import CALIBRATORS, Auto, CalibrationDataError, from_dict
from calibrators.auto import BINARY, MULTICLASS


def test_report_by_hand(world):
    logits, labels = world(300, 3, 1.6)
    names = ("identity", "temperature", "vector")
    weight = np.random.default_rng(1).uniform(0.1, 2, 300)
    calibrator = Auto(names, folds=4, seed=7).fit(logits, labels, weight)
    fold = np.random.default_rng(7).permutation(300) % 4
    losses = {}
    for name in names:
        losses[name] = np.empty(300)
        for part in range(4):
            test, fit = fold == part, fold != part
            fitted = CALIBRATORS[name]().fit(logits[fit], labels[fit], weight[fit])
            own = fitted.predict_proba(logits[test])[np.arange(test.sum()), labels[test]]
            losses[name][test] = -np.log((1 - 1e-4) * own + 1e-4 / 3)
    means = {name: np.average(one, weights=weight) for name, one in losses.items()}
    best = min(means, key=means.get)
    for one in calibrator.report_:
        excess = losses[one.name] - losses[best]
        mean = np.average(excess, weights=weight)
        error = np.sqrt((weight**2 * (excess - mean) ** 2).sum() * 300 / 299) / weight.sum()
        assert one.loss == pytest.approx(means[one.name])
        assert one.difference == pytest.approx(mean, abs=1e-12)
        assert one.standard_error == pytest.approx(error, abs=1e-12)
        assert one.error is None
    chosen = next(one.name for one in calibrator.report_ if one.difference <= one.standard_error)
    assert calibrator.calibrator_.name == chosen
    np.testing.assert_array_equal(
        calibrator.predict_proba(logits), CALIBRATORS[chosen]().fit(logits, labels, weight).predict_proba(logits)
    )


def test_does_no_harm_and_finds_the_temperature(world):
    # The standard error of the loss itself would keep identity at T = 1.3 nearly always; the paired one does not.
    harmless = sum(Auto().fit(*world(1000, 5, 1.0, seed=i)).calibrator_.name == "identity" for i in range(10))
    found = sum(Auto().fit(*world(1000, 5, 1.3, seed=i)).calibrator_.name == "temperature" for i in range(10))
    assert harmless >= 6
    assert found >= 6


def test_takes_more_where_more_is_needed():
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 2, 4000)
    logits = np.stack([np.zeros(4000), scores], axis=1)
    assert Auto().fit(logits, (rng.random(4000) < special.expit(scores - 2)).astype(int)).calibrator_.name == "platt"
    steps = (rng.random(4000) < 0.5 + 0.45 * np.sign(scores)).astype(int)
    assert Auto().fit(logits, steps).calibrator_.name == "centred_isotonic"


def test_reproducible_from_its_seed(world):
    logits, labels = world(400, 3, 1.4)
    assert Auto(seed=3).fit(logits, labels).to_dict() == Auto(seed=3).fit(logits, labels).to_dict()
    assert Auto(seed=3).fit(logits, labels).report_ != Auto(seed=4).fit(logits, labels).report_


def test_groups_stay_together_and_widen_the_error(world):
    logits, labels = world(200, 3, 1.3)
    repeated = np.repeat(logits, 10, axis=0), np.repeat(labels, 10)
    methods = ("identity", "temperature", "vector")
    alone = Auto(methods).fit(logits, labels)
    grouped = Auto(methods).fit_grouped(*repeated, np.repeat(np.arange(200), 10))
    naive = Auto(methods).fit(*repeated)
    for one, other in zip(alone.report_, grouped.report_, strict=True):
        assert other.loss == pytest.approx(one.loss, abs=1e-4)
        assert other.standard_error == pytest.approx(one.standard_error, abs=1e-4)
    pairs = [(a.standard_error, b.standard_error) for a, b in zip(grouped.report_, naive.report_, strict=True)]
    assert max(a for a, _ in pairs) > 2 * max(b for _, b in pairs)
    weight = np.arange(200) % 3
    kept = weight > 0
    names = np.array([f"card {i // 2}" for i in range(200)])
    first = Auto().fit_grouped(logits, labels, names, weight)
    assert first.report_ == Auto().fit_grouped(logits[kept], labels[kept], names[kept], weight[kept]).report_


def test_frequencies_count_as_rows(world):
    logits, labels = world(300, 3, 1.3)
    names, weight = ("identity", "temperature"), np.full(300, 4)
    importance, frequency = (
        max(one.standard_error for one in Auto(names, weight_kind=kind).fit(logits, labels, weight).report_)
        for kind in ("importance", "frequency")
    )
    assert frequency == pytest.approx(importance / 2, rel=0.01)


def test_a_method_that_cannot_be_fitted_is_reported_and_left_out():
    logits = np.random.default_rng(0).normal(size=(60, 3))
    logits[::10, 2] = -np.inf
    labels = np.where(np.arange(60) % 10 == 0, 2, np.argmax(logits, axis=1))
    calibrator = Auto(("identity", "temperature")).fit(logits, labels)
    assert calibrator.calibrator_.name == "identity"
    assert "Impossible label" in calibrator.report_[1].error
    assert from_dict(json.loads(json.dumps(calibrator.to_dict()))).report_ == calibrator.report_


def test_a_single_row_or_group_leaves_the_simplest(world):
    logits, labels = world(50, 3)
    for calibrator in (Auto().fit(logits[:1], labels[:1]), Auto().fit_grouped(logits, labels, np.zeros(50, int))):
        assert calibrator.calibrator_.name == "identity"
        assert calibrator.report_[0].loss is None


def test_takes_over_what_the_chosen_method_keeps(world):
    logits, labels = world(300, 3, 8.0)
    calibrator = Auto(("histogram", "identity")).fit(logits, labels)
    assert calibrator.calibrator_.name == "histogram"
    assert calibrator.top_label_only
    assert from_dict(calibrator.to_dict()).top_label_only


def test_the_lists_are_ordered_and_known():
    for names in (BINARY, MULTICLASS):
        assert names[0] == "identity"
        assert set(names) < set(CALIBRATORS)


def test_bad_options_and_documents_are_refused(world):
    for options in (
        {"candidates": ["magic", "identity"]},
        {"candidates": ["temperature"]},
        {"candidates": ["identity", "identity"]},
        {"candidates": ["identity", "auto"]},
        {"candidates": []},
        {"folds": 1},
        {"seed": -1},
        {"weight_kind": "x"},
    ):
        with pytest.raises(CalibrationDataError, match=next(iter(options))):
            Auto(**options)
    document = Auto(["identity", "temperature"]).fit(*world(100, 3)).to_dict()
    report = document["report"]
    for change in (
        {"report": report[::-1]},
        {"report": [{**report[0], "loss": "x"}, report[1]]},
        {"report": [{**report[0], "surplus": 1}, report[1]]},
        {"candidates": ["identity", "vector"]},
        {"calibrator": document},
        {"calibrator": {"method": "platt"}},
    ):
        with pytest.raises(CalibrationDataError):
            from_dict({**document, **change})
