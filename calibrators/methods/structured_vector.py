"""Structured vector scaling (SVS): vector scaling, shrunk towards temperature scaling."""

from __future__ import annotations

from typing import ClassVar, final

from calibrators.methods.shrunk_scaling import ShrunkScaling


@final
class StructuredVector(ShrunkScaling):
    """Scale and shift tempered log-probabilities as far as the data demand: p = softmax(w ⊙ f + b).

    f = log softmax(z / T) with T from temperature scaling; the objective is mean NLL + strength · K / n ·
    (Σ (w_k − 1)² + Σ b_k²) for n rows (with weights, their worth). With few rows the result is near temperature
    scaling, with many near `vector`, without its view of the common height of a row's logits. Log-probabilities are at
    least −87.3, that of the smallest normal float32. The optimum is unique.

    Preserves: nothing for certain.
    When to use: more than two classes and a few hundred labels, too few for `vector`; with many labels `vector` wins if
        the height of the logits is informative.

    Args:
        strength: Strength of the penalties, 0 or more.
        weight_kind: Meaning of sample weights in n: ``"importance"`` (the Kish effective number of rows) or
            ``"frequency"`` (a weight of 3 is a row seen three times).

    Attributes:
        temperature_: T, in [0.05, 20].
        at_bound_: T stopped at a bound.
        weights_: (K,) float64, w.
        intercepts_: (K,) float64, b. Only differences matter.

    Raises:
        CalibrationDataError: A negative strength, or an unknown weight kind.

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
    _full: ClassVar[bool] = False
