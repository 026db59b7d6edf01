"""Evidence against a hypothesis that may hold at first and fail later: a mixture over bets and onsets.

While the hypothesis holds, a bet j turns each row into a factor f of mean at most 1, whatever came before. The product
of the factors since row k grows if the hypothesis fails from row k on. j and k are unknown, so the capital is spread:
bet j has the weight w_j, onset k the part g_k of it. The evidence after row t,

    W_t = Σ_j w_j Σ_{k ≤ t} g_k f_{j,k} ⋯ f_{j,t} + Σ_{k > t} g_k,

starts at 1 and does not grow in the mean under the hypothesis, so by Ville's inequality it ever reaches 1/α with
probability at most α. Each inner sum obeys M_t = (M_{t−1} + g_t) f_t: the state is one number per bet, kept as a
logarithm with the next g added, and so always finite.

References:
    Ville (1939), Étude critique de la notion de collectif, chapter 5.
    Shiryaev (1963), On optimum methods in quickest detection problems (the sum over onsets).
    Shin, Ramdas & Rinaldo (2023), E-detectors (sums of e-processes that start one after the other).
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

_SCALE: Final = 100.0
"""Number of rows within which an onset is early."""


def shares_left(rows: int) -> float:
    """Return the capital of all onsets after n rows, Σ_{k > n} g_k = 1/(1 + ln(1 + n/100)).

    g_k falls as 1/(k ln² k), about as slowly as a finite sum allows, so a late onset is found nearly as fast as an
    early one.
    """
    return 1.0 / (1.0 + math.log1p(rows / _SCALE))


def onset_share(row: int) -> float:
    """Return the capital g_k of an onset at row k ≥ 1: `shares_left(k − 1) − shares_left(k)`."""
    return math.log1p(1.0 / (_SCALE + row - 1)) * shares_left(row - 1) * shares_left(row)


def first_stakes(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the log stakes on row 1, ln g_1 for each bet, in the given shape."""
    return np.full(shape, math.log(onset_share(1)))


def advance(stakes: NDArray[np.float64], factors: NDArray[np.float64], rows: int) -> None:
    """Count one row, in place.

    Args:
        stakes: ln(M_{t−1} + g_t) for each bet, shape (…, J); becomes ln(M_t + g_{t+1}).
        factors: ln f_t for each bet, finite; broadcasts to (…, J).
        rows: t, this row included.
    """
    stakes += factors
    np.logaddexp(stakes, math.log(onset_share(rows + 1)), out=stakes)


def log_evidence(
    stakes: NDArray[np.float64], log_weights: NDArray[np.float64], rows: NDArray[np.int64] | int
) -> NDArray[np.float64]:
    """Return ln W_t after t rows, shape (…).

    Args:
        stakes: Stakes from `advance`, shape (…, J).
        log_weights: ln w_j of weights with sum 1, shape (J,).
        rows: t; broadcasts to (…).
    """
    # The stakes already include g_{t+1}; the rest is the capital of later onsets, ln shares_left(t + 1).
    left = -np.log1p(np.log1p((np.asarray(rows) + 1) / _SCALE))
    evidence: NDArray[np.float64] = np.logaddexp(np.logaddexp.reduce(stakes + log_weights, axis=-1), left)
    return evidence
