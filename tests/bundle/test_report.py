"""The report."""

from __future__ import annotations

import json

import numpy as np
import pytest

import bundle
from bundle.report import evaluation_rows, headline, make_report
from calibrators import CALIBRATORS


@pytest.fixture(scope="module")
def reference() -> bundle.Reference:
    """Rows whose logits are twice too large: overconfident by T = 2."""
    rng = np.random.default_rng(0)

    def rows(n: int) -> bundle.LabelledLogits:
        logits = rng.normal(size=(n, 3)) * 2
        noise = rng.gumbel(size=(n, 3))
        return bundle.LabelledLogits((2 * logits).astype(np.float32), (logits + noise).argmax(axis=1))

    return bundle.Reference(rows(1000), rows(900), rows(100))


def test_calibration_mends_overconfidence_and_the_report_says_so(reference: bundle.Reference) -> None:
    calibrator = CALIBRATORS["temperature"]().fit(reference.fit.logits, reference.fit.labels)
    report = make_report(reference, calibrator)
    json.dumps(report, allow_nan=False)
    before, after = report["before"], report["after"]
    assert before["confidence"]["value"] > before["accuracy"]["value"] + 0.05
    assert before["accuracy"] == after["accuracy"]
    assert before["ece"]["value"] > before["ece"]["null"]["q95"]
    assert after["ece"]["value"] < before["ece"]["value"] / 2
    for name in ("nll", "brier"):
        change = report["difference"][name]
        assert change["estimate"] == pytest.approx(after[name]["value"] - before[name]["value"], abs=1e-6)
        assert change["low"] < change["estimate"] < change["high"] < 0


def test_an_ece_never_stands_without_its_null(reference: bundle.Reference) -> None:
    for name, method in CALIBRATORS.items():
        report = make_report(reference, method().fit(reference.fit.logits, reference.fit.labels))
        for side in ("before", "after"):
            ece = report[side]["ece"]
            assert 0 < ece["null"]["mean"] < ece["null"]["q95"], name
            assert 0 < ece["p_value"] <= 1
            assert headline(report)[f"ece_null_q95_{side}"] == ece["null"]["q95"]
        above = report["after"]["ece"]["value"] > report["after"]["ece"]["null"]["q95"]
        assert [one.startswith("Not calibrated: the ECE is") for one in report["warnings"]] == [True] * above
        assert above or name != "identity"


def test_rows_of_the_fit_are_not_evaluated(reference: bundle.Reference) -> None:
    rows = evaluation_rows(reference)
    assert len(rows.labels) == len(reference.certify.labels) + len(reference.gate.labels)
    np.testing.assert_array_equal(rows.logits[:900], reference.certify.logits)


def test_one_infinitely_confident_error_does_not_spoil_the_report() -> None:
    def rows(n: int) -> bundle.LabelledLogits:
        logits = np.full((n, 2), -1e30, np.float32)
        logits[:, 0] = 1e30
        labels = np.zeros(n, np.int64)
        labels[0] = 1
        return bundle.LabelledLogits(logits, labels)

    reference = bundle.Reference(rows(20), rows(20), rows(20))
    report = make_report(reference, CALIBRATORS["histogram"]().fit(reference.fit.logits, reference.fit.labels))
    assert report["before"]["nll"]["value"] == pytest.approx(-np.log(0.5e-4) / 20, rel=1e-3)
    assert report["difference"]["nll"]["estimate"] < 0


def test_rows_of_one_group_count_once_in_the_intervals(reference: bundle.Reference) -> None:
    calibrator = CALIBRATORS["temperature"]().fit(reference.fit.logits, reference.fit.labels)

    def four_times(part: bundle.LabelledLogits, *, grouped: bool) -> bundle.LabelledLogits:
        size = len(part.labels)
        group = np.tile(np.arange(size) + 10_000 * size, 4) if grouped else None
        return bundle.LabelledLogits(np.tile(part.logits, (4, 1)), np.tile(part.labels, 4), group=group)

    def width(grouped: bool) -> float:
        parts = (four_times(part, grouped=grouped) for part in (reference.certify, reference.gate))
        found = make_report(bundle.Reference(reference.fit, *parts), calibrator)["difference"]["nll"]
        return float(found["high"] - found["low"])

    once = make_report(reference, calibrator)["difference"]["nll"]
    assert width(grouped=True) == pytest.approx(once["high"] - once["low"], rel=0.01)
    assert width(grouped=False) == pytest.approx((once["high"] - once["low"]) / 2, rel=0.01)
