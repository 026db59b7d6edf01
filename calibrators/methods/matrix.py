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
    When to use: if classes are confused with one another systematically, with about 30 labels for each of the K² + K
        parameters: 3,000 for 10 classes, 300,000 for 100. The penalty is on a mean over K² weights, so it is weaker the
        larger K is: with 5,000 labels of 100 classes the fit is far worse than none. Otherwise use `structured_matrix`.

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

    _features = staticmethod(raw_logits)
