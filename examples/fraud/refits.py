"""Two recalibrations on labels that exist only for some payments, compared with the truth.

A policy reviews the highest scores. That alone hardly biases a calibrator of the right form, because at a given score
the reviewed labels are like all others; but the fraud rate among the labels is biased. Labels that were not sought
(customers report frauds, never genuine payments) bias the calibrator itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrators import CALIBRATORS, Calibrator
from examples.fraud.traffic import Labels, Served, mean_of

METHOD = "platt"
_LEAST = 1e-9


@dataclass(frozen=True)
class AgainstTruth:
    """How far stated probabilities of fraud are from the true ones, over all payments.

    Attributes:
        stated: Mean stated probability.
        true: Mean true probability.
        let_through: Mean stated probability of allowed payments; NaN without any.
        let_through_true: Their mean true probability.
        excess: Mean log loss (nats) minus that of the true probabilities, the minimum.
    """

    stated: float
    true: float
    let_through: float
    let_through_true: float
    excess: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able document."""
        return asdict(self)


@dataclass(frozen=True)
class Share:
    """An estimated share of fraud.

    Attributes:
        value: The estimate.
        error: Its standard error under the method's own assumptions.
    """

    value: float
    error: float


def naive(logits: NDArray[np.float32], fraud: NDArray[np.bool_], labels: Labels) -> tuple[Calibrator, Share]:
    """Recalibrate on all labels with equal weights."""
    return _refit(logits, fraud, labels.rows, np.ones(len(labels.rows)))


def weighted(logits: NDArray[np.float32], fraud: NDArray[np.bool_], labels: Labels) -> tuple[Calibrator, Share]:
    """Recalibrate on sought labels, each weighted by 1/propensity."""
    sought = labels.sought
    return _refit(logits, fraud, sought.rows, 1.0 / sought.propensity)


def _refit(
    logits: NDArray[np.float32], fraud: NDArray[np.bool_], rows: NDArray[np.int64], weight: NDArray[np.float64]
) -> tuple[Calibrator, Share]:
    came = fraud[rows].astype(np.int64)
    mean = float(np.average(came, weights=weight))
    error = float(np.sqrt(np.sum((weight * (came - mean)) ** 2)) / weight.sum())
    return CALIBRATORS[METHOD]().fit(logits[rows], came, weight), Share(mean, error)


def against_truth(stated: NDArray[np.floating], served: Served) -> AgainstTruth:
    """Compare stated probabilities of fraud, (N,), with the true ones."""
    true = np.clip(served.payments.probability, _LEAST, 1 - _LEAST)
    claimed = np.clip(np.asarray(stated, np.float64), _LEAST, 1 - _LEAST)
    excess = true * np.log(true / claimed) + (1 - true) * np.log((1 - true) / (1 - claimed))
    allowed = served.action == "allow"
    return AgainstTruth(
        float(claimed.mean()),
        float(true.mean()),
        mean_of(claimed[allowed]),
        mean_of(true[allowed]),
        float(excess.mean()),
    )
