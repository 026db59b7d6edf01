"""The report of an imported model: the shared document, and what is found of the class that matters."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.metrics import average_precision_score, precision_score, recall_score, roc_auc_score

from bundle import LabelledLogits, Reference
from bundle import report as reports
from calibrators import CALIBRATORS, Calibrator, softmax
from importing.errors import ImportRefusedError
from importing.report import DIVIDED, POINTS, make_report

NAMES = ("genuine", "fraud")


def rows(n: int, seed: int, *, factor: float = 2.0, base_rate: float = 0.03) -> LabelledLogits:
    """Draw rows of a rare class whose log-odds are `factor` times too large."""
    rng = np.random.default_rng(seed)
    fraud = rng.random(n) < base_rate
    odds = rng.normal(size=n) * 2 + 4 * fraud - 2 + np.log(base_rate / (1 - base_rate))
    return LabelledLogits(np.stack([0 * odds, factor * odds], 1).astype(np.float32), fraud.astype(np.int64))


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(rows(2000, 0), rows(3000, 1), rows(1000, 2))


@pytest.fixture(scope="module")
def calibrator(reference: Reference) -> Calibrator:
    return CALIBRATORS["platt"]().fit(reference.fit.logits, reference.fit.labels)


@pytest.fixture(scope="module")
def report(reference: Reference, calibrator: Calibrator) -> dict[str, Any]:
    return make_report(reference, calibrator, NAMES, "fraud")


def test_it_is_the_shared_report_and_a_section(
    reference: Reference, calibrator: Calibrator, report: dict[str, Any]
) -> None:
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert {name: part for name, part in report.items() if name != "positive"} == reports.make_report(
        reference, calibrator
    )
    labels = reports.evaluation_rows(reference).labels
    section = report["positive"]
    assert (section["label"], section["rows"], section["positives"]) == ("fraud", 4000, labels.sum())
    assert section["base_rate"] == labels.mean()


def test_its_figures_are_those_of_scikit_learn(
    reference: Reference, calibrator: Calibrator, report: dict[str, Any]
) -> None:
    evaluated = reports.evaluation_rows(reference)
    for side, probabilities in (
        ("before", softmax(evaluated.logits)),
        ("after", calibrator.predict_proba(evaluated.logits)),
    ):
        stated, happened = probabilities[:, 1], evaluated.labels
        found = report["positive"][side]
        assert found["average_precision"]["value"] == pytest.approx(average_precision_score(happened, stated))
        assert found["auroc"]["value"] == pytest.approx(roc_auc_score(happened, stated))
        curve = found["precision_recall"]
        assert 50 < len(curve["threshold"]) <= POINTS
        for at in (0, 7, len(curve["threshold"]) // 2, -1):
            taken = stated >= np.float32(curve["threshold"][at])
            assert curve["flagged"][at] == pytest.approx(taken.mean())
            assert curve["precision"][at] == pytest.approx(precision_score(happened, taken))
            assert curve["recall"][at] == pytest.approx(recall_score(happened, taken))


def test_reliability_shows_what_calibration_mends(report: dict[str, Any]) -> None:
    shares = {}
    for side in ("before", "after"):
        bins = report["positive"][side]["reliability"]
        columns = {name: np.array(column) for name, column in bins.items()}
        assert columns["count"].sum() == 4000
        assert columns["count"][-1] < DIVIDED
        assert (np.diff(columns["logit"]) > 0).all()
        np.testing.assert_allclose(expit(columns["logit"]), columns["probability"], rtol=1e-6)
        assert ((columns["low"] <= columns["rate"]) & (columns["rate"] <= columns["high"])).all()
        inside = (columns["low"] <= columns["probability"]) & (columns["probability"] <= columns["high"])
        shares[side] = inside.mean()
    assert shares["after"] > 0.85
    assert shares["before"] < shares["after"] - 0.1


def test_the_rows_that_fitted_do_not_count(
    reference: Reference, calibrator: Calibrator, report: dict[str, Any]
) -> None:
    other = Reference(rows(50, 9), reference.certify, reference.gate)
    assert make_report(other, calibrator, NAMES, "fraud")["positive"] == report["positive"]


@pytest.mark.parametrize("base_rate", [0.03, 0.8])
def test_of_two_classes_the_rarer_one_matters(base_rate: float) -> None:
    parts = Reference(*(rows(400, seed, base_rate=base_rate) for seed in range(3)))
    fitted = CALIBRATORS["temperature"]().fit(parts.fit.logits, parts.fit.labels)
    assert make_report(parts, fitted, NAMES, None)["positive"]["label"] == ("fraud" if base_rate < 0.5 else "genuine")


def test_one_class_of_three_is_named() -> None:
    def three(seed: int) -> LabelledLogits:
        rng = np.random.default_rng(seed)
        logits = 2 * rng.normal(size=(600, 3))
        return LabelledLogits(logits.astype(np.float32), (logits + rng.gumbel(size=(600, 3))).argmax(axis=1))

    parts = Reference(three(0), three(1), three(2))
    fitted = CALIBRATORS["temperature"]().fit(parts.fit.logits, parts.fit.labels)
    assert "positive" not in make_report(parts, fitted, "abc", None)
    section = make_report(parts, fitted, "abc", "b")["positive"]
    evaluated = reports.evaluation_rows(parts)
    stated = fitted.predict_proba(evaluated.logits)[:, 1]
    assert section["after"]["auroc"]["value"] == pytest.approx(roc_auc_score(evaluated.labels == 1, stated))
    with pytest.raises(ImportRefusedError, match="Unknown class 'd'"):
        make_report(parts, fitted, "abc", "d")


@pytest.mark.parametrize("name", ["identity", "histogram", "isotonic"])
def test_certain_probabilities_and_a_missing_class_give_finite_numbers(name: str) -> None:
    def certain(n: int, frauds: int) -> LabelledLogits:
        labels = (np.arange(n) < frauds).astype(np.int64)
        return LabelledLogits(np.where(np.arange(2) == labels[:, None], 1e30, -1e30).astype(np.float32), labels)

    for frauds in (0, 3, 40):
        parts = Reference(certain(40, 3), certain(30, min(frauds, 30)), certain(10, min(frauds, 10)))
        fitted = CALIBRATORS[name]().fit(parts.fit.logits, parts.fit.labels)
        section = json.loads(json.dumps(make_report(parts, fitted, NAMES, "fraud"), allow_nan=False))["positive"]
        assert (section["after"]["auroc"]["value"] is None) == (frauds != 3)
        assert (section["after"]["precision_recall"]["threshold"] == []) == (frauds == 0)
        assert np.isfinite(section["before"]["reliability"]["logit"]).all()


def test_log_odds_of_bins_are_of_their_mean_probability(report: dict[str, Any]) -> None:
    bins = report["positive"]["after"]["reliability"]
    np.testing.assert_allclose(bins["logit"], logit(bins["probability"]))
