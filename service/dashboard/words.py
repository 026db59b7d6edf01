"""Format numbers, times and conditions for a page."""

from __future__ import annotations

from typing import Any

from candor.contract.conditions import Condition
from candor.contract.gate import CapName
from service.dashboard.charts.svg import thousands
from service.times import iso

NONE = "—"
_METRICS = {
    "min_precision": ("precision", "≥"),
    "min_recall": ("recall", "≥"),
    "max_false_positive_rate": ("false positive rate", "≤"),
    "max_flag_rate": ("flag rate", "≤"),
    "max_review_per_day": ("rows per day", "≤"),
    "max_selective_risk": ("selective risk", "≤"),
    "min_probability": ("probability", "≥"),
    "max_expected_loss": ("expected loss left", "≤"),
}
MEASURES = {
    "nll": "log loss (nats)",
    "brier": "Brier score",
    "accuracy": "accuracy",
    "refinement_auroc": "refinement (AUROC)",
    "debiased_calibration_error": "squared calibration error, debiased",
    "ece": "ECE, 15 bins",
}
"""Names of a report's metrics."""
CAPS: dict[CapName, str] = {
    "flipped": "decisions that change",
    "flag_rate": "rows that the first band takes",
    "flag_rate_ratio": "rows that it takes, against before",
    "probability_change": "largest change of a probability, in 99 % of the rows",
}
"""Names of the caps on what a recalibration changes."""
CAUSES = {"bundle": "bundle", "policy": "policy", "recalibrate": "recalibration", "prior_shift": "prior shift"}


def percent(share: float | None, digits: int = 1) -> str:
    r"""Return a share in percent.

    >>> percent(0.9431), percent(None)
    ('94.3\xa0%', '—')
    """
    return NONE if share is None else f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with a fixed number of decimals.

    >>> number(0.35951), number(-0.5, 2), number(None)
    ('0.3595', '−0.50', '—')
    """
    return NONE if value is None else f"{value:.{digits}f}".replace("-", "−")


def amount(value: float | None) -> str:
    r"""Return an amount with its thousands apart.

    >>> amount(1234567.5), amount(-0.5), amount(None)
    ('1\u202f234\u202f567.50', '−0.50', '—')
    """
    return NONE if value is None else f"{value:,.2f}".replace(",", "\N{NARROW NO-BREAK SPACE}").replace("-", "−")


def signed(value: float | None, digits: int = 4) -> str:
    """Return a number with its sign."""
    return NONE if value is None else f"{value:+.{digits}f}".replace("-", "−")


def interval(ends: list[float] | tuple[float, float] | None, digits: int = 4) -> str:
    """Return an interval.

    >>> interval([-0.65, 0.5], 2)
    '−0.65 to 0.50'
    """
    return NONE if ends is None else f"{number(ends[0], digits)} to {number(ends[1], digits)}"


def bound(name: CapName, value: float | None) -> str:
    r"""Return a cap or its measured value, in its own unit.

    >>> bound("flipped", 0.12), bound("flag_rate_ratio", 2.853), bound("flag_rate_ratio", None)
    ('12.0\xa0%', '×2.85', '—')
    """
    match name:
        case "flag_rate_ratio":
            return NONE if value is None else f"×{value:.3g}"
        case "probability_change":
            return number(value, 3)
        case _:
            return percent(value)


def count(value: int | None) -> str:
    """Return a whole number with its thousands apart."""
    return NONE if value is None else thousands(value)


def stamp(iso: str | None) -> str:
    """Return a time to the second.

    >>> stamp("2026-11-20T23:00:08.588086Z")
    '2026-11-20 23:00:08'
    """
    return NONE if iso is None else iso[:19].replace("T", " ")


def moment(us: int) -> str:
    """Return a time in microseconds to the minute.

    >>> moment(1_700_000_000_000_000)
    '2023-11-14 22:13'
    """
    return iso(us)[:16].replace("T", " ")


def condition(when: Condition | None) -> str:
    """Return a band's condition in words."""
    if when is None:
        return "everything else"
    if when.name == "cost":
        return "lowest expected cost" + (" by amount" if when.by_amount else "")
    name, relation = _METRICS[when.name]
    return f"{name} {relation} {count(int(when.value)) if when.per_day else f'{when.value:g}'}"


def promise(certificate: dict[str, Any]) -> str:
    """Return the promise of a watched certificate.

    >>> promise({"metric": "false_positive_rate", "at_least": None, "at_most": 0.01})
    'false positive rate ≤ 0.01'
    """
    name = certificate["metric"].replace("_", " ")
    if certificate["at_least"] is not None:
        return f"{name} ≥ {certificate['at_least']:g}"
    day = certificate.get("per_day")
    of_a_day = "" if day is None else f" ({count(day['promised'])} of {count(day['assumed'])} rows per day)"
    return f"{name} ≤ {certificate['at_most']:g}{of_a_day}"


def calibrator(document: dict[str, Any]) -> str:
    """Return a calibrator in a few words: its method, and its number where it has a single one.

    >>> calibrator({"method": "temperature", "temperature": 1.7670374, "classes": 10})
    'temperature, T = 1.767'
    """
    method = str(document["method"])
    return f"{method}, T = {document['temperature']:.3f}" if isinstance(document.get("temperature"), float) else method
