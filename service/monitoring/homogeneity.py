"""Compare the counts of two samples over the same bins: the population stability index, and an exact test.

H₀: both samples are independent draws from one distribution over the bins, which is unknown. Given the total of each
bin, the split of the totals between the samples does not depend on that distribution. Walking through the bins, the
second sample's count in each is hypergeometric given those before, and G/2, half the likelihood-ratio statistic, is the
sum of one term for each bin. So

    E = mean over λ of exp(λ G/2) / Π (conditional mean of the bin's exp(λ term))

has mean 1 under H₀, whatever the distribution, the sizes and the number of bins; no count is too small. P(E ≥ 1/α) ≤ α.

References:
    Wilks (1938), for the asymptotic law of G, which is not used here.
    Grünwald, de Heide & Koolen (2024), Safe testing, for tests by variables of mean 1.
    Lewis (1994), An introduction to credit scoring, for the population stability index.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

_TILTS: Final = np.array([0.6, 0.8, 0.9, 0.97])
"""λ: small ones suit many bins, those near 1 few bins and strong evidence."""

Counts = NDArray[np.int64]


def stability_index(reference: Counts, traffic: Counts) -> float:
    """Return the population stability index Σ (q − p) ln(q/p), with half a row added to each bin of both samples.

    Args:
        reference: Rows in each bin, (B,), at least one row.
        traffic: Rows in each bin, (B,), at least one row.

    Example:
        >>> round(stability_index(np.array([500, 500]), np.array([250, 750])), 3)
        0.274
    """
    p, q = ((counts + 0.5) / (counts.sum() + 0.5 * len(counts)) for counts in (reference, traffic))
    return float(((q - p) * np.log(q / p)).sum())


def index_without_drift(reference: Counts, traffic: Counts) -> float:
    """Return the mean of the index when nothing has drifted, (B − 1)(1/n + 1/m) over the B bins with rows."""
    bins = int(((reference + traffic) > 0).sum())
    return (bins - 1) * (1 / int(reference.sum()) + 1 / int(traffic.sum()))


def evidence(reference: Counts, traffic: Counts) -> float:
    """Return ln E against one distribution of both samples, in nats; P(ln E ≥ ln(1/α)) ≤ α under H₀.

    Args:
        reference: Rows in each bin, (B,), at least one row.
        traffic: Rows in each bin, (B,), at least one row.

    Example:
        >>> even = np.array([500, 500])
        >>> evidence(even, np.array([505, 495])) < 0 < evidence(even, np.array([350, 650]))
        True
    """
    total = reference + traffic
    kept = total > 0
    total, drawn = total[kept], traffic[kept]
    left, left_drawn = int(total.sum()), int(drawn.sum())
    log_e = np.zeros(len(_TILTS))
    for rows, of_traffic in zip(total[:-1].tolist(), drawn[:-1].tolist(), strict=True):
        lowest, highest = max(0, left_drawn - (left - rows)), min(rows, left_drawn)
        counts = np.arange(lowest, highest + 1)
        term = _term(counts, rows, left_drawn, left)
        log_means = _log_sum(_TILTS[:, None] * term + _log_hypergeometric(counts, rows, left_drawn, left))
        log_e += _TILTS * term[of_traffic - lowest] - log_means
        left, left_drawn = left - rows, left_drawn - of_traffic
    return float(_log_sum(log_e) - math.log(len(_TILTS)))


def rejected(evidences: Sequence[float], level: float) -> NDArray[np.bool_]:
    """Return which hypotheses Holm's procedure rejects, bool (C,).

    The probability of rejecting any true one is at most `level`, however the tests depend on each other.

    Args:
        evidences: Evidence against each hypothesis, ln E.
        level: In (0, 1).

    Example:
        >>> rejected([9.0, 0.3, 4.0], 0.05)
        array([ True, False,  True])
    """
    found = np.zeros(len(evidences), bool)
    for place, which in enumerate(np.argsort(-np.asarray(evidences), kind="stable").tolist()):
        if evidences[which] < math.log((len(evidences) - place) / level):
            break
        found[which] = True
    return found


def _term(counts: Counts, rows: int, drawn: int, left: int) -> NDArray[np.float64]:
    """Return a bin's part of G/2 for each possible count of the second sample: this bin against those after it."""
    xlogy, others, first = scipy.special.xlogy, left - drawn, rows - counts
    seen = xlogy(counts, counts) + xlogy(drawn - counts, drawn - counts) - xlogy(drawn, drawn)
    seen += xlogy(first, first) + xlogy(others - first, others - first) - xlogy(others, others)
    pooled = xlogy(rows, rows) + xlogy(left - rows, left - rows) - xlogy(left, left)
    term: NDArray[np.float64] = seen - pooled
    return term


def _log_hypergeometric(counts: Counts, rows: int, drawn: int, left: int) -> NDArray[np.float64]:
    logs: NDArray[np.float64] = _log_choose(rows, counts) + _log_choose(left - rows, drawn - counts)
    return logs - _log_sum(logs)


def _log_choose(n: int, k: Counts) -> NDArray[np.float64]:
    gammaln = scipy.special.gammaln
    logs: NDArray[np.float64] = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return logs


def _log_sum(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ln Σ exp over the last axis; scipy's takes ten times as long for short arrays."""
    highest = logs.max(axis=-1, keepdims=True)
    total: NDArray[np.float64] = highest[..., 0] + np.log(np.exp(logs - highest).sum(axis=-1))
    return total
