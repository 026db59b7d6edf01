"""The diagrams of a revision: from its refit's report, or from its bundle's reference rows where no refit made it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from markupsafe import Markup

from calibrators import from_dict as calibrator_from_dict
from service.dashboard.charts.confidence import confidence
from service.dashboard.charts.reliability import Curve, reliability
from service.models import Model
from service.refit_metrics import confidence_histogram
from service.refit_metrics import reliability as reliability_of
from service.refit_report import Side

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
    """Draw one side of a refit's report; None where it has none.

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
    """Measure a calibrator on its bundle's held-out rows, as far as they have not fitted it; None without the bundle.

    Args:
        model: The model.
        bundle_id: The revision's bundle.
        calibrator: The revision's calibrator, as a document.

    Returns:
        `reliability` and `confidence` as a refit's report has them, both sides alike.
    """
    bundle = next((served.bundle for served in model.loaded.values() if served.revision.bundle_id == bundle_id), None)
    if bundle is None:
        return None
    parts = bundle.reference.certify, bundle.reference.gate
    logits, labels = (np.concatenate([getattr(part, name) for part in parts]) for name in ("logits", "labels"))
    side = Side.of(calibrator_from_dict(calibrator), {}, logits)
    apart = np.arange(len(labels))
    return {
        "reliability": reliability_of(side, side, labels, apart),
        "confidence": confidence_histogram(side, side, labels),
    }
