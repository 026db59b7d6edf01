"""Structured matrix scaling (SMS): matrix scaling, shrunk towards temperature scaling."""

from __future__ import annotations

from typing import ClassVar, final

from calibrators.methods.shrunk_scaling import ShrunkScaling


@final
class StructuredMatrix(ShrunkScaling):
    """Map tempered log-probabilities by a matrix that stays as near the identity as the data allow.

    p = softmax(A f + b), f = log softmax(z / T) with T from temperature scaling; the objective is mean NLL + strength
    · (K / n · Σ (A_kk − 1)² + K (K − 1) / n · Σ A_jk² (j ≠ k) + K / n · Σ b_k²) for n rows (with weights, their worth).
    Each group of parameters is penalised by its size, so with few rows the result is temperature scaling.
    Log-probabilities are at least −87.3, that of the smallest normal float32. The optimum is unique.

    Preserves: nothing for certain.
    When to use: if classes are confused with one another systematically, instead of `matrix`.

    Args:
        strength: Strength of the penalties, 0 or more.
        weight_kind: Meaning of sample weights in n: ``"importance"`` (the Kish effective number of rows) or
            ``"frequency"`` (a weight of 3 is a row seen three times).

    Attributes:
        temperature_: T, in [0.05, 20].
        at_bound_: T stopped at a bound.
        weights_: (K, K) float64, A; row k gives the score of class k.
        intercepts_: (K,) float64, b. Only differences matter.

    Raises:
        CalibrationDataError: A negative strength, or an unknown weight kind.

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
    _full: ClassVar[bool] = True
