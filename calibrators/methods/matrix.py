"""Matrix scaling: an affine map of the logits."""

from __future__ import annotations

from typing import ClassVar, final

from calibrators.fitting.softmax_regression import raw_logits
from calibrators.methods.full_affine import FullAffine


@final
class Matrix(FullAffine):
    """Map all logits by a matrix and a shift: p = softmax(W z + b).

    The K² + K parameters overfit without many labels per class, so the off-diagonal weights and the intercepts are
    penalised (ODIR): the objective is mean NLL + off_diagonal · mean W_ij² (i ≠ j) + intercept · mean b_i², on
    standardised logits (columns centred, all divided by one standard deviation), with a ridge of 1e-6 towards the
    identity. The optimum is unique.

    Preserves: nothing for certain.
    When to use: if classes are confused with one another systematically, with about 30 labels per class. With fewer use
        `structured_matrix`, which is shrunk towards temperature scaling; this one then mostly is temperature scaling.

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
        Guo, Pleiss, Sun, Weinberger (2017), section 4.2; regularisation: Kull et al. (2019), Beyond temperature
        scaling, section 3.
    """

    name: ClassVar[str] = "matrix"

    _features = staticmethod(raw_logits)
