"""Read and replace the confidence of the class with the largest logit."""

from __future__ import annotations

import numpy as np

from calibrators.arrays import Doubles, Labels
from calibrators.chunks import logit_chunks, row_sums
from calibrators.validation import LabelledRows


def row_confidence(logits: Doubles, maxima: Doubles) -> Doubles:
    """Return the largest softmax probability (n,) of each row of logits (n, K) with maxima (n, 1)."""
    with np.errstate(over="ignore"):
        if logits.shape[1] == 2:
            return np.asarray(1 / (1 + np.exp(-np.abs(logits[:, 0] - logits[:, 1]))))
        shares = logits - maxima
    return np.asarray(1 / row_sums(np.exp(shares, out=shares))[:, 0])


def row_tops(logits: Doubles) -> Labels:
    """Return the class (n,) of each row's largest logit, the first of equals."""
    if logits.shape[1] == 2:
        return np.asarray(logits[:, 1] > logits[:, 0], np.int64)
    return np.asarray(np.argmax(logits, axis=1), np.int64)


def top_confidences(rows: LabelledRows) -> tuple[Doubles, Labels]:
    """Return confidence (N,) and class (N,) of the largest logit of every row, read chunk by chunk.

    Raises:
        CalibrationDataError: NaN, +inf, or a row with only −inf.
    """
    confidence = np.empty(len(rows.labels))
    predicted = np.empty(len(rows.labels), np.int64)
    for part, chunk, maxima in logit_chunks(rows.logits):
        predicted[part] = row_tops(chunk)
        confidence[part] = row_confidence(chunk, maxima)
    return confidence, predicted


def replace_confidence(logits: Doubles, confidence: Doubles) -> Doubles:
    """Give each row's top class a new probability (n,), and the others the rest in their old proportions.

    The proportions are a softmax over the others alone, so they survive underflow. If no other class is possible, the
    others share evenly. Overwrites ``logits`` (n, K), float64, and returns them.
    """
    top = (np.arange(len(logits)), np.argmax(logits, axis=1))
    logits[top] = -np.inf
    others = np.maximum.reduce(logits, axis=1, keepdims=True)
    logits[others[:, 0] == -np.inf] = 0.0
    logits[top] = -np.inf
    with np.errstate(over="ignore"):
        logits -= np.where(others == -np.inf, 0.0, others)
    np.exp(logits, out=logits)
    logits *= (1 - confidence[:, None]) / np.add.reduce(logits, axis=1, keepdims=True)
    logits[top] = confidence
    return logits
