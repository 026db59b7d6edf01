"""Log-odds of each class against all others, exact where probabilities round to 0 or 1."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrators.arrays import Doubles, Labels
from calibrators.chunks import check_label_logits, logit_chunks
from calibrators.validation import LabelledRows

# Sums of shares below this may have lost parts of themselves to underflow.
_TINY = 1e-280


@dataclass(frozen=True, slots=True)
class RowTotals:
    """What the log-odds of any class need of each row; N numbers each.

    Attributes:
        total: (N,) log Σ exp z over all classes.
        others: (N,) the same without the class of the largest logit; −inf where no other class is possible.
        top: (N,) the class of the largest logit.
    """

    total: Doubles
    others: Doubles
    top: Labels

    def log_odds(self, logits: Doubles, k: int) -> Doubles:
        """Log-odds (N,) of class ``k`` from its logits (N,): −inf where it is impossible, +inf where it is certain."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            below = logits - self.total
            return np.where(self.top == k, logits - self.others, below - np.log1p(-np.exp(below)))


def row_totals(logits: Doubles, maxima: Doubles) -> RowTotals:
    """Reads one chunk of logits (n, K) with row maxima (n, 1); ``logits`` is not changed."""
    top = np.argmax(logits, axis=1)
    rest = logits.copy()
    rest[np.arange(len(rest)), top] = -np.inf
    second = np.maximum.reduce(rest, axis=1, keepdims=True)
    with np.errstate(over="ignore", divide="ignore"):
        rest -= np.where(second == -np.inf, 0.0, second)
        others = second[:, 0] + np.log(np.add.reduce(np.exp(rest), axis=1))
        total = maxima[:, 0] + np.log1p(np.exp(others - maxima[:, 0]))
    return RowTotals(total, others, top)


def all_row_totals(rows: LabelledRows) -> RowTotals:
    """Reads all rows, chunk by chunk.

    Raises:
        CalibrationDataError: Logits that cannot be used, or a row whose own label has a probability of zero.
    """
    totals = RowTotals(np.empty(len(rows.labels)), np.empty(len(rows.labels)), np.empty(len(rows.labels), np.int64))
    for part, chunk, maxima in logit_chunks(rows.logits):
        check_label_logits(chunk[np.arange(len(chunk)), rows.labels[part]], rows.labels, part.start)
        one = row_totals(chunk, maxima)
        totals.total[part], totals.others[part], totals.top[part] = one.total, one.others, one.top
    return totals


def log_odds_against_rest(logits: Doubles, maxima: Doubles) -> Doubles:
    """Log-odds (n, K) of every class of one chunk of logits (n, K) with row maxima (n, 1), which is overwritten.

    −inf where a class is impossible, +inf where it is certain.
    """
    with np.errstate(over="ignore", divide="ignore"):
        logits -= maxima
        shares = np.exp(logits)
        top = (np.arange(len(logits)), np.argmax(logits, axis=1))
        shares[top] = 0
        rest = np.add.reduce(shares, axis=1, keepdims=True)
        # Beside the largest, whose share is 1, nothing cancels.
        shares -= rest
        np.negative(shares, out=shares)
        np.log1p(shares, out=shares)
        far = rest[:, 0] < _TINY
        rest_logs = np.log(rest[:, 0])
        if far.any():
            others = logits[far]
            others[np.arange(len(others)), top[1][far]] = -np.inf
            second = np.maximum.reduce(others, axis=1, keepdims=True)
            others -= np.where(second == -np.inf, 0.0, second)
            rest_logs[far] = second[:, 0] + np.log(np.add.reduce(np.exp(others), axis=1))
        logits -= shares
        logits[top] = -rest_logs
    return logits
