"""The diagrams of a revision: from its recalibration's report, else from its bundle's reference rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from markupsafe import Markup

from service.dashboard.charts.confidence import confidence
from service.dashboard.charts.reliability import Curve, reliability
from service.decisions.calibrated import Calibrated
from service.decisions.multicalibrated import restored
from service.decisions.rows import Rows
from service.recalibration.metrics import confidence_histogram
from service.recalibration.metrics import reliability as reliability_of
from service.serving.model import Model

When = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class Diagrams:
    """One side of a comparison, drawn.

    Attributes:
        title: What it is of.
        reliability: The reliability diagram.
        curve: Its points.
        confidence: The confidences of right and wrong answers.
        bins: Their counts: from, to, right, wrong.
    """

    title: str
    reliability: Markup
    curve: Curve
    confidence: Markup
    bins: list[tuple[float, float, int, int]]


def drawn(report: dict[str, Any], when: When, title: str) -> Diagrams | None:
    """Draw one side of a recalibration's report; None if the report has no diagrams.

    Args:
        report: The revision's report.
        when: Which side.
        title: What it is of.
    """
    if "reliability" not in report or "confidence" not in report:
        return None
    curve = Curve.of(report["reliability"][when])
    edges, spread = report["confidence"]["edges"], report["confidence"][when]
    right, wrong = spread["right"], spread["wrong"]
    return Diagrams(
        title,
        reliability(f"reliability-{when}", f"Reliability, {title}", curve),
        curve,
        confidence(f"confidence-{when}", f"Confidence of right and wrong answers, {title}", edges, right, wrong),
        list(zip(edges[:-1], edges[1:], right, wrong, strict=True)),
    )


def on_reference(model: Model, bundle_id: str, calibrator: dict[str, Any]) -> dict[str, Any] | None:
    """Measure a calibrator on its bundle's reference rows that did not fit it; None without the bundle.

    Args:
        model: The model.
        bundle_id: The revision's bundle.
        calibrator: The revision's calibrator, as a document.

    Returns:
        `reliability` and `confidence` from a recalibration report; the same form for both sides.
    """
    bundle = next((served.bundle for served in model.loaded.values() if served.revision.bundle_id == bundle_id), None)
    if bundle is None:
        return None
    parts = bundle.reference.certify, bundle.reference.gate
    logits, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("logits", "labels"))
    rows = Rows(logits=logits, label=labels)
    side = Calibrated.of(restored(calibrator), bundle.manifest.labels, rows)
    return {"reliability": reliability_of(side, side), "confidence": confidence_histogram(side, side)}
