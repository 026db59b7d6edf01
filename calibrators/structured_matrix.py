"""Structured matrix scaling (SMS): matrix scaling, shrunk towards temperature scaling."""

from __future__ import annotations

from typing import ClassVar, final

from calibrators.shrunk_scaling import ShrunkScaling


@final
class StructuredMatrix(ShrunkScaling):
    """Maps tempered log-probabilities by a matrix that stays as near the identity as the data let it.

    p = softmax(A f + b), f = log softmax(z / T) with T from temperature scaling; the objective is mean NLL + strength
    · (K / n · Σ (A_kk − 1)² + K (K − 1) / n · Σ A_jk² (j ≠ k) + K / n · Σ b_k²), n rows (with weights, what they are
    worth). Each group of parameters is penalised by its size, so the matrix comes in only where it pays, and with few
    rows the result is temperature scaling. Log-probabilities below −87.3, the smallest normal float32, count as that.
    The optimum is unique.

    Preserves: nothing for certain.
    When to use: when classes are confused with one another in a lasting way, instead of `matrix`.

    Args:
        strength: Of the penalties, 0 or more.
        weight_kind: What sample weights count for in n: ``"importance"`` (the Kish effective number of rows) or
            ``"frequency"`` (a weight of 3 is a row seen three times).

    Attributes:
        temperature_: T, in [0.05, 20].
        at_bound_: T stopped at a bound.
        weights_: (K, K) float64, A; row k gives the score of class k.
        intercepts_: (K,) float64, b. Only differences matter.

    Raises:
        CalibrationDataError: A negative strength, or another weight kind.

    References:
        Berta, Holzmüller, Jordan, Bach (2025), Structured matrix scaling for multi-class calibration, arXiv 2511.03685;
        the quadratic penalties, strengths K / n and K (K − 1) / n, as in the authors' package.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0]] * 4)
        >>> StructuredMatrix(strength=0).fit(logits, np.array([0, 0, 0, 1])).predict_proba(logits[:1]).round(4)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "structured_matrix"
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = False
    _full: ClassVar[bool] = True
