"""Matrix scaling: an affine map of the logits."""

from __future__ import annotations

from typing import ClassVar, final

from calibrators.arrays import Doubles
from calibrators.full_affine import FullAffine
from calibrators.softmax_regression import raw_logits


@final
class Matrix(FullAffine):
    """Maps all logits by a matrix and a shift: p = softmax(W z + b).

    Its K² + K parameters overfit unless there are many labels a class, so the off-diagonal weights and the intercepts
    are drawn to zero (ODIR): the objective is mean NLL + off_diagonal · mean W_ij² (i ≠ j) + intercept · mean b_i², on
    standardised logits (columns centred, all divided by one standard deviation), and a ridge of 1e-6 towards the
    identity. The optimum is unique.

    Preserves: nothing for certain.
    When to use: when classes are confused with one another in a lasting way, with some 30 labels for each of the
        K² + K parameters: 3,000 for 10 classes, 300,000 for 100. The penalty is on a mean over K² weights, so it is
        weaker the larger K is, and with 5,000 labels of 100 classes the fit is far worse than none. Else
        `structured_matrix`.

    Args:
        off_diagonal: Penalty on the mean square of the off-diagonal weights, 0 or more.
        intercept: Penalty on the mean square of the intercepts, 0 or more.

    Attributes:
        weights_: (K, K) float64; row k gives the score of class k.
        intercepts_: (K,) float64. Only differences matter.

    Raises:
        CalibrationDataError: A negative penalty.

    References:
        Guo, Pleiss, Sun, Weinberger (2017), section 4.2; regularisation: Kull et al. (2019), Beyond temperature
        scaling, section 3.
    """

    name: ClassVar[str] = "matrix"
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = False

    @staticmethod
    def _features(logits: Doubles, maxima: Doubles) -> Doubles:
        return raw_logits(logits, maxima)
