"""Log-odds of each class against all others, exact even if probabilities round to 0 or 1; and probabilities.

With d = z − max z and S the sum of exp d over all classes except that of the largest logit, class k has the log-odds
d_k − log(1 + S − exp d_k), in which nothing cancels beside the 1 of the largest; its own are −log S. Its probability is
exp d_k / (1 + S).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from calibrators.arrays import Doubles, Labels
from calibrators.chunks import check_label_logits, logit_chunks
from calibrators.validation import LabelledRows

# Sums of shares below this may have lost digits to underflow.
_TINY = 1e-280


@dataclass(frozen=True, slots=True)
class RowTotals:
    """The part of the log-odds of all classes that depends on the row alone.

    Attributes:
        maxima: (N,) max z.
        rest: (N,) S.
        rest_log: (N,) log S, also if S underflows; −inf if no other class is possible.
        top: (N,) the class of the largest logit.
    """

    maxima: Doubles
    rest: Doubles
    rest_log: Doubles
    top: Labels

    def log_odds(self, logits: Doubles, k: int, part: slice) -> Doubles:
        """Return log-odds (n,) of class ``k`` from its logits (n,), equal to `log_odds_against_rest` to the last bit.

        −inf if the class is impossible, +inf if it is certain.
        """
        with np.errstate(over="ignore", divide="ignore"):
            below = logits - self.maxima[part]
            below -= np.log1p(self.rest[part] - np.exp(below))
        return np.where(self.top[part] == k, -self.rest_log[part], below)

    def probabilities(self, logits: Doubles, k: int, part: slice) -> Doubles:
        """Return probabilities (n,) of class ``k``, equal to `probabilities_against_rest` to the last bit."""
        with np.errstate(over="ignore"):
            below = logits - self.maxima[part]
        top, certain = self.top[part] == k, self.rest_log[part] == -np.inf
        shares = np.where(top, 1.0, np.exp(below)) / (1 + self.rest[part])
        shares[below == -np.inf] = -np.inf
        shares[top & certain] = np.inf
        return shares


def row_totals(rows: LabelledRows) -> RowTotals:
    """Read all rows, chunk by chunk.

    Raises:
        CalibrationDataError: Invalid logits, or a row whose own label has a probability of zero.
    """
    count = len(rows.labels)
    totals = RowTotals(np.empty(count), np.empty(count), np.empty(count), np.empty(count, np.int64))
    for part, chunk, maxima in logit_chunks(rows.logits):
        check_label_logits(chunk[np.arange(len(chunk)), rows.labels[part]], rows.labels, part.start)
        totals.maxima[part] = maxima[:, 0]
        totals.top[part], _, totals.rest[part], totals.rest_log[part] = _shares_in_place(chunk, maxima)
    return totals


def log_odds_against_rest(logits: Doubles, maxima: Doubles) -> Doubles:
    """Overwrite one chunk of logits (n, K) with row maxima (n, 1) by the log-odds of every class.

    −inf if a class is impossible, +inf if it is certain.
    """
    top, shares, rest, rest_log = _shares_in_place(logits, maxima)
    shares -= rest[:, None]
    np.negative(shares, out=shares)
    np.log1p(shares, out=shares)
    with np.errstate(over="ignore"):
        logits -= shares
    logits[np.arange(len(logits)), top] = -rest_log
    return logits


def probabilities_against_rest(logits: Doubles, maxima: Doubles) -> Doubles:
    """Return the probability of every class in one chunk of logits (n, K), which are overwritten by d.

    −inf if a class is impossible, +inf if it is certain: a probability that only rounds to 0 or 1 is that number.
    """
    top, shares, rest, rest_log = _shares_in_place(logits, maxima)
    shares[np.arange(len(shares)), top] = 1
    shares /= (1 + rest)[:, None]
    if np.minimum.reduce(logits, axis=None) == -np.inf:
        shares[logits == -np.inf] = -np.inf
        certain = np.flatnonzero(rest_log == -np.inf)
        shares[certain, top[certain]] = np.inf
    return shares


def _shares_in_place(logits: Doubles, maxima: Doubles) -> tuple[Labels, Doubles, Doubles, Doubles]:
    """Overwrite logits (n, K) by d; return the largest class, exp d of the others, S and log S."""
    with np.errstate(over="ignore", divide="ignore"):
        logits -= maxima
        top = np.argmax(logits, axis=1)
        shares = np.exp(logits)
        shares[np.arange(len(logits)), top] = 0
        rest = np.add.reduce(shares, axis=1)
        rest_log = np.log(rest)
        far = rest < _TINY
        if far.any():
            others = logits[far]
            others[np.arange(len(others)), top[far]] = -np.inf
            second = np.maximum.reduce(others, axis=1, keepdims=True)
            others -= np.where(second == -np.inf, 0.0, second)
            rest_log[far] = second[:, 0] + np.log(np.add.reduce(np.exp(others), axis=1))
    return top, shares, rest, rest_log
