"""Dirichlet calibration: an affine map of the log-probabilities."""

from __future__ import annotations

from typing import ClassVar, final

from calibrators.arrays import Doubles
from calibrators.full_affine import FullAffine
from calibrators.softmax_regression import log_probabilities


@final
class Dirichlet(FullAffine):
    """Maps the log-probabilities by a matrix and a shift: p = softmax(W log q + b), q = softmax(z).

    What follows when the probabilities of each class are Dirichlet distributed. Unlike `matrix` it sees nothing of what
    the softmax drops, the common height of a row's logits. Regularised likewise (ODIR): mean NLL + off_diagonal ·
    mean W_ij² (i ≠ j) + intercept · mean b_i², on standardised log-probabilities (columns centred, all divided by one
    standard deviation), and a ridge of 1e-6 towards the identity. The optimum is unique.

    Preserves: nothing for certain.
    When to use: as `matrix`, with as many labels, above all where only probabilities are to be had.

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
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = False

    @staticmethod
    def _features(logits: Doubles, maxima: Doubles) -> Doubles:
        return log_probabilities(logits, maxima)
