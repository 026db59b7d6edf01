"""The class that matters in an imported model: how well it is found before and after calibration, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from service.dashboard.charts.curves import precision_recall
from service.dashboard.charts.positives import Bin, positives

_AT_RECALL = (0.5, 0.8, 0.9, 0.95)
_SIDES = {"before": "before calibration", "after": "after calibration"}

Threshold = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Side:
    """Before or after calibration.

    Attributes:
        title: Which of them.
        average_precision: None where the rows lack positives or negatives.
        auroc: The same.
        reliability: Share of positive rows against their probability.
        bins: Its points.
        curve: Precision against recall; None without positives.
        thresholds: Rows of its table, see `thresholds_of`.
    """

    title: str
    average_precision: float | None
    auroc: float | None
    reliability: Markup
    bins: list[Bin]
    curve: Markup | None
    thresholds: list[Threshold]


@dataclass(frozen=True, slots=True)
class Positive:
    """A class against the others.

    Attributes:
        label: The class.
        rows: Rows that did not fit the calibrator.
        positives: How many of them have the class.
        base_rate: Their share.
        sides: Before and after calibration.
    """

    label: str
    rows: int
    positives: int
    base_rate: float
    sides: list[Side]


def drawn(report: dict[str, Any]) -> Positive | None:
    """Draw the section `positive` of a report; None without one, and for one of another form.

    Args:
        report: Report of a revision. A bundle's own part of it is as its maker wrote it.
    """
    try:
        found = report["positive"]
        label, rate = str(found["label"]), float(found["base_rate"])
        sides = [_side(key, label, rate, found[key]) for key in _SIDES]
        return Positive(label, int(found["rows"]), int(found["positives"]), rate, sides)
    except (LookupError, TypeError, ValueError, OverflowError):
        return None


def thresholds_of(
    threshold: Sequence[float], recall: Sequence[float], precision: Sequence[float], flagged: Sequence[float]
) -> list[Threshold]:
    """Return the strictest threshold of each recall: threshold, recall, precision, share of all rows."""
    places = sorted({int(np.searchsorted(recall, wanted)) for wanted in _AT_RECALL})
    return [
        (float(threshold[at]), float(recall[at]), float(precision[at]), float(flagged[at]))
        for at in places
        if at < len(recall)
    ]


def _side(key: str, label: str, base_rate: float, found: dict[str, Any]) -> Side:
    title, points, curve = _SIDES[key], found["reliability"], found["precision_recall"]
    columns = ("probability", "rate", "low", "high", "count")
    rows = zip(*(points[name] for name in columns), strict=True)
    bins = [
        Bin(float(stated), float(rate), float(low), float(high), int(count)) for stated, rate, low, high, count in rows
    ]
    return Side(
        title,
        _number(found["average_precision"]["value"]),
        _number(found["auroc"]["value"]),
        positives(f"positive-{key}", f"Reliability of the probability of {label} {title}", bins),
        bins,
        precision_recall(
            f"found-{key}", f"Precision and recall of {label} {title}", curve["recall"], curve["precision"], base_rate
        )
        if curve["recall"]
        else None,
        thresholds_of(*(curve[name] for name in ("threshold", "recall", "precision", "flagged"))),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
