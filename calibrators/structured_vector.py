"""Structured vector scaling (SVS): vector scaling, shrunk towards temperature scaling."""

from __future__ import annotations

from typing import ClassVar, final

from calibrators.shrunk_scaling import ShrunkScaling


@final
class StructuredVector(ShrunkScaling):
    """Scales and shifts tempered log-probabilities as far as the data insist: p = softmax(w ⊙ f + b).

    f = log softmax(z / T) with T from temperature scaling, and the objective is mean NLL + strength · K / n ·
    (Σ (w_k − 1)² + Σ b_k²), n rows (with weights, what they are worth). With few rows it is near temperature
    scaling, with many near `vector`, but that it sees nothing of the common height of a row's logits. Log-probabilities
    below −87.3, the smallest normal float32, count as that. The optimum is unique.

    Preserves: nothing for certain.
    When to use: more than two classes and a few hundred labels, which `vector` would overfit; where the height of the
        logits tells something, `vector` wins with many.

    Args:
        strength: Of the penalties, 0 or more.
        weight_kind: What sample weights count for in n: ``"importance"`` (the Kish effective number of rows) or
            ``"frequency"`` (a weight of 3 is a row seen three times).

    Attributes:
        temperature_: T, in [0.05, 20].
        at_bound_: T stopped at a bound.
        weights_: (K,) float64, w.
        intercepts_: (K,) float64, b. Only differences matter.

    Raises:
        CalibrationDataError: A negative strength, or another weight kind.

    References:
        Berta, Holzmüller, Jordan, Bach (2025), Structured matrix scaling for multi-class calibration, arXiv 2511.03685;
        the quadratic penalties, strengths K / n, as in the authors' package.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0]] * 4)
        >>> StructuredVector(strength=0).fit(logits, np.array([0, 0, 0, 1])).predict_proba(logits[:1]).round(4)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "structured_vector"
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = False
    _full: ClassVar[bool] = False
