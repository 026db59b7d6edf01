"""Accuracy and calibration of a network on rows that it did not learn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrators import Temperature, metrics, softmax

BINS = 15
PRECISION = 0.5
# Candidates for the optimal ECE: 61 temperatures, evenly spaced in log T.
_TEMPERATURES = np.geomspace(0.125, 8.0, 61)


@dataclass(frozen=True)
class Evaluation:
    """Metrics of one epoch; not estimates for other rows, since `temperature` is fitted on these.

    Attributes:
        accuracy: Share of rows whose top label is right.
        nll: Mean negative log-likelihood, in nats.
        ece: Expected calibration error of the top label, 15 bins of equal width.
        temperature: The T that minimises the NLL on these rows.
        ece_at_temperature: The ECE with it.
        optimal_ece: The lowest ECE among `temperature` and 61 T from 1/8 to 8, on these rows (optimal ECE, Wang 2021,
            section 5). As the minimum of many estimates it is below a calibrated network's average.
        auroc: Area under the ROC curve of the rarer of two classes; NaN for more classes, or if the rows lack one.
        average_precision: Of the rarer of two classes, in the same way.
        recall_at_precision: Largest recall of the rarer of two classes at a precision of 50 % or more, 0 for none.
        refinement_auroc: Area under the ROC curve of confidence, right against wrong; NaN if all rows are of one kind.
    """

    accuracy: float
    nll: float
    ece: float
    temperature: float
    ece_at_temperature: float
    optimal_ece: float
    refinement_auroc: float
    auroc: float = float("nan")
    average_precision: float = float("nan")
    recall_at_precision: float = float("nan")


def evaluate(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> Evaluation:
    """Evaluate logits (N, K) against labels (N,)."""
    probabilities = softmax(logits)
    wrong = float(np.mean(logits.argmax(axis=1) != labels))
    fitted = Temperature().fit(logits, labels)

    def ece(temperature: float) -> float:
        scaled = softmax(logits / np.float32(temperature))
        return float(metrics.expected_calibration_error(scaled, labels, bins=BINS))

    at_temperature = ece(fitted.temperature_)
    return Evaluation(
        accuracy=1 - wrong,
        nll=float(metrics.negative_log_likelihood(probabilities, labels)),
        ece=ece(1.0),
        temperature=float(fitted.temperature_),
        ece_at_temperature=at_temperature,
        optimal_ece=min(at_temperature, *map(ece, _TEMPERATURES)),
        refinement_auroc=float(metrics.refinement_auroc(probabilities, labels)) if 0 < wrong < 1 else float("nan"),
        **_of_the_rarer(probabilities, labels),
    )


def _of_the_rarer(probabilities: NDArray[np.floating[Any]], labels: NDArray[np.int64]) -> dict[str, float]:
    """Return how well the rarer of two classes is found; empty for more classes, or if the rows lack one."""
    counts = np.bincount(labels, minlength=probabilities.shape[1])
    if len(counts) != 2 or not counts.all():
        return {}
    rare = int(counts.argmin())
    return {
        "auroc": float(metrics.refinement_auroc(probabilities, labels, positive=rare)),
        "average_precision": float(metrics.refinement_aupr(probabilities, labels, positive=rare)),
        "recall_at_precision": recall_at_precision(probabilities[:, rare], labels == rare, PRECISION),
    }


def recall_at_precision(scores: NDArray[np.floating[Any]], positive: NDArray[np.bool_], precision: float) -> float:
    """Return the largest recall of a threshold whose flagged rows have this precision or more; 0 if none has.

    Args:
        scores: Larger for rows that are more likely positive, (N,).
        positive: Whether they are, bool (N,), some of them.
        precision: In (0, 1].

    Example:
        >>> recall_at_precision(np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False]), 0.6)
        1.0
    """
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(positive[order])
    last = np.append(scores[order][1:] != scores[order][:-1], True)  # equal scores are flagged together
    enough = last & (found >= precision * np.arange(1, len(found) + 1))
    return float(found[enough].max(initial=0) / found[-1])


def recall_at(curve: Mapping[str, Sequence[float]], precision: float) -> float:
    """Return the largest recall at this precision or more, of the columns `precision` and `recall` of a report."""
    pairs = zip(curve["precision"], curve["recall"], strict=True)
    return max((recall for reached, recall in pairs if reached >= precision), default=0.0)
