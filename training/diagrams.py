"""Reliability diagrams and confidence histograms of a report, as SVG."""

from __future__ import annotations

import io

from bundle import Reference
from bundle.report import BINS, evaluation_rows
from calibrators import CALIBRATORS, Calibrator, confidence_histogram, reliability_diagram


def draw(reference: Reference, calibrator: Calibrator) -> dict[str, bytes]:
    """Draw the rows of the report before and after calibration.

    Args:
        reference: The reference rows.
        calibrator: Fitted on `reference.fit`.

    Returns:
        SVG bytes by name: `reliability-before`, `reliability-after`, `confidence-before`, `confidence-after`. Equal
        rows give equal bytes.
    """
    import matplotlib as mpl  # takes a second to import

    rows = evaluation_rows(reference)
    identity = CALIBRATORS["identity"]().fit(reference.fit.logits, reference.fit.labels)
    diagrams = {}
    for side, each in (("before", identity), ("after", calibrator)):
        probabilities = each.predict_proba(rows.logits)
        title = f"{side.capitalize()} calibration ({each.name})"
        predicted, _ = each.top_label(rows.logits, probabilities)
        for name, draw_one in (("reliability", reliability_diagram), ("confidence", confidence_histogram)):
            with mpl.rc_context({"svg.hashsalt": "candor"}):
                figure = draw_one(probabilities, rows.labels, predicted=predicted, bins=BINS, title=title)
                buffer = io.BytesIO()
                figure.savefig(buffer, format="svg", metadata={"Date": None})
            diagrams[f"{name}-{side}"] = buffer.getvalue()
    return diagrams
