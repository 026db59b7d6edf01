import json
from typing import Any

import numpy as np
import pytest

from candor.contract.gate import Gate
from service.decisions.caps import bounded
from service.decisions.gate import compare
from service.decisions.unattended import Limits, judge


def verdict(mode: Any = "superior", gained: float = 0.2) -> Gate:
    labels = np.repeat([0, 1], 200)
    active, candidate = (np.where(labels[:, None] == [0, 1], p, 1 - p) for p in (0.6, 0.6 + gained))
    return compare(candidate, active, labels, mode=mode, attempt=1)


def judged(result: Gate, limits: Limits | None = None, **found: Any) -> Gate:
    nothing: dict[str, Any] = {"unidentified_share": 0.0, "missing_share": 0.0, "caps": (), "uncertified": ()}
    return judge(result, limits=limits or Limits(), **(nothing | found))


def test_nobody_judged_is_not_a_yes() -> None:
    assert verdict().passed
    assert not verdict().unattended


def test_what_is_better_for_all_rows_may_go_unattended() -> None:
    result = judged(verdict(), unidentified_share=0.05, missing_share=0.05)
    assert (result.unattended, result.unattended_reason) == (True, None)
    assert result.reason == verdict().reason


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"unidentified_share": 0.9}, "No label represents 90.0% of the rows, more than 5.0%."),
        (
            {"missing_share": 0.06},
            "6.0% of the sought labels have not arrived, or the model lacks them, more than 5.0%.",
        ),
        ({"uncertified": [("auto", None)]}, "Policy 'auto' would lose its certificate, and send every row to review."),
        (
            {"uncertified": [("auto", "DE")]},
            "Policy 'auto' would lose its certificate of segment 'DE': rows get the fallback.",
        ),
        (
            {
                "caps": [
                    bounded("flipped", "auto", 2, 10, 0.2, 0.5, 0.4),
                    bounded("flag_rate", "auto", 9, 10, 0.9, 0.99, None),
                ]
            },
            "Policy 'auto' may change up to 50.0% of its decisions, more than 40.0%.",
        ),
        (
            {"caps": [bounded("flag_rate", "auto", 2, 10, 0.2, 0.5, 0.4)], "missing_share": 1.0},
            "100.0% of the sought labels have not arrived, or the model lacks them, more than 5.0%; "
            "policy 'auto' may flag up to 50.0% of the rows, more than 40.0%.",
        ),
    ],
)
def test_each_obstacle_is_named(found: dict[str, Any], words: str) -> None:
    result = judged(verdict(), **found)
    assert (result.passed, result.unattended, result.unattended_reason) == (True, False, words)


def test_neither_a_refused_nor_a_merely_harmless_refit_goes_unattended() -> None:
    refused = judged(verdict(gained=-0.1))
    assert (refused.passed, refused.unattended_reason) == (False, "The gate refuses the recalibration.")
    harmless = judged(verdict("non_inferior"))
    assert (harmless.passed, harmless.unattended) == (True, False)


def test_the_reason_says_what_the_comparison_does_not_cover() -> None:
    result = judged(verdict(), unidentified_share=0.25)
    assert result.reason == f"{verdict().reason} No label represents 25.0% of the rows: nothing is known about them."
    assert judged(verdict(), Limits(unidentified=0.3), unidentified_share=0.25).unattended


def test_the_verdict_is_json() -> None:
    document = judged(verdict(), caps=[bounded("flipped", "auto", 2, 10, 0.2, 0.5, None)]).document
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["caps"][0]["policy"] == "auto"


def test_a_calibration_error_that_may_be_large_needs_a_person() -> None:
    limits = Limits(calibration_error=0.05)
    assert judged(verdict(), limits, calibration_error=0.04).unattended
    refused = judged(verdict(), limits, calibration_error=0.08)
    assert refused.unattended_reason == "The calibration error may be up to 0.080, more than 0.050."
    assert not judged(verdict(), limits).unattended, "without a bound"


def test_a_bound_just_above_its_limit_does_not_read_as_equal_to_it() -> None:
    caps = [
        bounded("flipped", "auto", 2, 10, 0.07, 0.1003, 0.1),
        bounded("flag_rate_ratio", "auto", 2, 10, 1.0, 3.0004, 3.0),
        bounded("probability_change", None, 2, 10, 0.07, 0.07, 0.06),
    ]
    found = judged(verdict(), Limits(calibration_error=0.15), caps=caps, calibration_error=0.1502)
    assert found.unattended_reason == (
        "The calibration error may be up to 0.151, more than 0.150; policy 'auto' may change up to 10.1% of its "
        "decisions, more than 10.0%; policy 'auto' may flag up to 3.001 times as many rows, more than 3 times; "
        "probabilities may change by up to 0.07 in 99% of the rows, more than 0.06."
    )
