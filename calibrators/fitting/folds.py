"""Folds of cross-validation, and the loss that they are compared by."""

from __future__ import annotations

import numpy as np

from calibrators.arrays import Doubles, Labels
from calibrators.softmax import PROBABILITY_FLOOR


def folds_of(cluster: Labels, folds: int, seed: int) -> Labels:
    """Return the fold (N,) of each row, from 0; rows of a cluster share one, and few clusters make few folds.

    Args:
        cluster: (N,) numbers from 0 without gaps.
        folds: Their largest number.
        seed: Of the assignment.
    """
    count = int(cluster.max()) + 1
    return np.asarray((np.random.default_rng(seed).permutation(count) % min(folds, count))[cluster])


def floored_losses(own: Doubles, classes: int) -> Doubles:
    """Return log losses (N,) of the labels' probabilities (N,), mixed with 1e-4 of a uniform distribution."""
    return np.asarray(-np.log((1 - PROBABILITY_FLOOR) * own + PROBABILITY_FLOOR / classes))
