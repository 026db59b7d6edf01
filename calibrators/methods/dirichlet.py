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
        off_diagonal: Penalty on the mean square of the off-diagonal weights, 0 or more.
        intercept: Penalty on the mean square of the intercepts, 0 or more.

    Attributes:
        weights_: (K, K) float64; row k gives the score of class k.
        intercepts_: (K,) float64. Only differences matter.

    Raises:
        CalibrationDataError: A negative penalty.

    References:
        Kull, Perelló-Nieto, Kängsepp, Silva Filho, Song, Flach (2019), Beyond temperature scaling: obtaining
        well-calibrated multiclass probabilities with Dirichlet calibration.
    """

    name: ClassVar[str] = "dirichlet"

    _features = staticmethod(log_probabilities)
