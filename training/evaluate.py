"""Accuracy and calibration of a network on rows that it did not learn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibrators import Temperature, metrics, softmax

BINS = 15
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
        refinement_auroc: Area under the ROC curve of confidence, right against wrong; NaN if all rows are of one kind.
    """

    accuracy: float
    nll: float
    ece: float
    temperature: float
    ece_at_temperature: float
    optimal_ece: float
    refinement_auroc: float


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
    )
