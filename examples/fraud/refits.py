"""Two refits on labels that exist only for some payments, each held against the truth.

That a policy reviews what looks worst would hurt a refit little where the calibrator has the right form: given the
score, the labels of what is reviewed are like those of all. The share of fraud among the labels is wrong all the same;
and what comes unasked, frauds that customers report and never a genuine payment, bends the refit itself.
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
        let_through: Mean stated probability of the payments that were let through; NaN where none was.
        let_through_true: Their mean true probability.
        excess: Mean log loss (nats) beyond that of the true probabilities, which nothing beats.
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
        error: Its standard error, as it looks to whoever believes in how it was made.
    """

    value: float
    error: float


def naive(logits: NDArray[np.float32], fraud: NDArray[np.bool_], labels: Labels) -> tuple[Calibrator, Share]:
    """Refit on every label that came, all alike."""
    return _refit(logits, fraud, labels.rows, np.ones(len(labels.rows)))


def weighted(logits: NDArray[np.float32], fraud: NDArray[np.bool_], labels: Labels) -> tuple[Calibrator, Share]:
    """Refit on the labels that were sought, each for the 1/propensity payments that it stands for."""
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
    """Measure stated probabilities of fraud, (N,), against the true ones."""
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
