"""Why a row got its probability: what each column of a model of trees contributes to the calibrated log-odds.

The trees' contributions add up to the scores of the model. A calibrator maps these to calibrated log-odds, and the
contributions to calibrated ones by one factor: the mean slope of that map between the log-odds of which nothing is
known and those of the row. For a map that is a straight line (temperature, Platt), these are the Shapley values of the
calibrated log-odds; for any other they are the Aumann-Shapley values along the line between both points. A step of a
calibrator between two points that are close together has no such factor: what is left then is the residual.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bundle.trees import rows_of
from calibrators import Calibrator
from candor.contract.cases import Contribution, Reasons
from candor.contract.policies import TOP
from service.serving.plane import Served

MOST_SHOWN: Final = 20
"""Maximum number of columns that are named; the others are one sum."""
SMALLEST: Final = 1e-12
"""Probabilities below this count as this, so that zeros have log-odds."""
NARROWEST: Final = 1.0
"""Smallest difference of raw log-odds over which a slope is taken."""


def reasons_of(
    served: Served, calibrator: Calibrator, positive: str, example: NDArray[Any], logits: NDArray[np.float32]
) -> Reasons | None:
    """Return what each column contributes to the log-odds of a label; None if the bundle has no trees.

    Args:
        served: A revision of the model file that predicted.
        calibrator: Calibrator of the revision that predicted.
        positive: The label that the policy is about, or "top" for the predicted one. It is compared with the most
            probable other label: of two labels, these are its log-odds.
        example: The row as the model took it, without a batch axis.
        logits: Its logits, (K,).
    """
    trees, graph = served.bundle.trees, served.bundle.manifest.graph
    if trees is None or graph is None:
        return None
    raw = logits.astype(np.float64)
    probability = calibrator.predict_proba(raw[None])[0]
    order = np.argsort(-probability, kind="stable").tolist()
    label = order[0] if positive == TOP else served.labels.index(positive)
    against = next(one for one in order if one != label)

    def over(scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return log-odds (…) of the label against the other one, from scores (…, S)."""
        if graph.output.form == "margin":
            return scores[..., 0] if label == 1 else -scores[..., 0]
        columns = graph.output.order or range(len(served.labels))
        return np.asarray(scores[..., columns[label]] - scores[..., columns[against]])

    row = rows_of(graph, example[None])[0]
    each = over(trees.contributions(row))
    here, nothing = float(raw[label] - raw[against]), float(over(trees.expected))

    def calibrated(log_odds: float) -> float:
        """Return the calibrated log-odds of such raw ones, with all other scores as they are."""
        moved = raw.copy()
        moved[[label, against]] += np.array([0.5, -0.5]) * (log_odds - here)
        return _log_odds(calibrator.predict_proba(moved[None])[0], label, against)

    more = max(NARROWEST - abs(here - nothing), 0.0) / 2
    low, high = min(here, nothing) - more, max(here, nothing) + more
    factor = (calibrated(high) - calibrated(low)) / (high - low)
    log_odds, base = _log_odds(probability, label, against), calibrated(nothing)
    shares = factor * each
    names = [column.name for column in served.bundle.columns.columns] if served.bundle.columns is not None else None
    largest = [place for place in np.argsort(-np.abs(shares), kind="stable").tolist() if shares[place]][:MOST_SHOWN]
    told = tuple(
        Contribution(column=str(place) if names is None else names[place], log_odds=float(shares[place]))
        for place in largest
    )
    named = math.fsum(one.log_odds for one in told)
    other = math.fsum(shares.tolist()) - named
    return Reasons(
        label=served.labels[label],
        against=served.labels[against],
        log_odds=log_odds,
        base=base,
        contributions=told,
        other=other,
        residual=log_odds - base - named - other,
        factor=factor,
    )


def _log_odds(probabilities: NDArray[np.floating[Any]], label: int, against: int) -> float:
    one, other = (max(float(probabilities[place]), SMALLEST) for place in (label, against))
    return math.log(one / other)
