"""Dirichlet calibration: an affine map of the log-probabilities."""

from __future__ import annotations

from typing import ClassVar, final

from calibrators.fitting.softmax_regression import log_probabilities
from calibrators.methods.full_affine import FullAffine


@final
class Dirichlet(FullAffine):
    """Map the log-probabilities by a matrix and a shift: p = softmax(W log q + b), q = softmax(z).

    This is the exact map if the probabilities of each class are Dirichlet distributed. Unlike `matrix` it ignores the
    common height of a row's logits. The regularisation is that of `matrix`, on log-probabilities.

    Preserves: nothing for certain.
    When to use: as `matrix`, with as many labels, above all if only probabilities are available.

    Args:
        off_diagonal: Penalty on the mean square of the off-diagonal weights, 0 or more; None: K (K − 1) times the one
            of 1, 0.1, 0.01, 1e-3 and 1e-4 down to which the loss in three folds falls, each time by more than a
            standard error (`fit_grouped` never splits a group).
        intercept: Penalty on the mean square of the intercepts, 0 or more.

    Attributes:
        off_diagonal_: The penalty in use; None where temperature scaling replaces the map: with a smaller loss in the
            folds, or fewer than five rows (or groups) per class.
        weights_: (K, K) float64; row k gives the score of class k.
        intercepts_: (K,) float64. Only differences matter.

    Raises:
        CalibrationDataError: A negative penalty; in `fit`, N · K² above 6e7 without a given ``off_diagonal``.

    References:
        Kull, Perelló-Nieto, Kängsepp, Silva Filho, Song, Flach (2019), Beyond temperature scaling: obtaining
        well-calibrated multiclass probabilities with Dirichlet calibration.
    """

    name: ClassVar[str] = "dirichlet"

    _features = staticmethod(log_probabilities)
