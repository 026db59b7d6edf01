"""Ensemble of near-isotonic regressions: an average of curves that may bend down a little."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt
import scipy

from calibrators.arrays import Doubles
from calibrators.documents import Document, written
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind, counting_weight
from calibrators.fitting.near_isotonic import NearIsotonicPath
from calibrators.fitting.sorted_scores import sort_scores
from calibrators.methods.isotonic_curves import LinearCurves
from calibrators.validation import check_choice

# Models less likely than the best by this factor are dropped.
_NEGLIGIBLE = 1e-6
# Above this many blocks, a model is scored only after the number of blocks has shrunk by 1 %.
_EVERY_STEP = 500


@final
class ENIR(LinearCurves):
    """Average the near-isotonic regressions along their path, weighted by the Bayesian information criterion.

    A near-isotonic regression minimises ½ Σ (y − z)² + λ Σ max(z_i − z_{i+1}, 0): with λ = 0 it is the labels
    themselves, with a large λ their isotonic regression. Each merge of neighbours on the way is one model with weight
    exp(−BIC / 2), BIC = −2 log likelihood + blocks · log n. Models less than 1e-6 as likely as the best are dropped;
    above 500 blocks, one model stands for neighbours that differ by less than a hundredth of their blocks. The average
    is linear between the data, constant beyond. With two classes there is one curve, for class 1; with more, one per
    class, and rows are divided by their sum. As with `isotonic`, probabilities of exactly 0 and 1 occur. A fit takes
    about ten microseconds per row and curve.

    Preserves: nothing for certain; order is only nearly kept.
    When to use: as `isotonic`, if the scores' own order is in doubt.

    Args:
        weight_kind: Meaning of sample weights in n and the likelihood: ``"importance"`` (their sum is the Kish
            effective number of rows) or ``"frequency"`` (a weight of 3 is a row seen three times).

    Attributes:
        inputs_: One array per curve, (M,) increasing probabilities.
        outputs_: One array per curve, (M,) calibrated probabilities there.

    Raises:
        CalibrationDataError: An unknown weight kind.

    References:
        Naeini, Cooper (2016), Binary classifier calibration using an ensemble of near isotonic regression models,
        section III; path: Tibshirani, Hoefling, Tibshirani (2011), Nearly-isotonic regression.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, 2.0]] * 4)
        >>> ENIR().fit(logits, np.array([1, 1, 1, 0])).predict_proba(logits[:1])
        array([[0.25, 0.75]])
    """

    name: ClassVar[str] = "enir"

    def __init__(self, weight_kind: WeightKind = "importance") -> None:
        check_choice(weight_kind, WEIGHT_KINDS, "weight_kind")
        self.weight_kind = weight_kind

    def _fit_curve(self, scores: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None) -> Doubles:
        if len(scores) == 0:
            return np.array([[0.0, 1.0], [0.0, 1.0]])
        counted = None if weight is None else counting_weight(weight, len(scores), self.weight_kind)
        rows = sort_scores(scores, hits, counted)
        starts = rows.distinct()
        inputs, (mass, right) = rows.scores[starts], rows.totals(starts)
        levels = np.clip(_average(mass, right), 0, 1)
        ends = np.flatnonzero(np.diff(levels))
        kept = np.union1d(np.concatenate([[0], ends + 1]), np.concatenate([ends, [len(levels) - 1]]))
        return np.stack([inputs[kept], levels[kept]])

    def _parameters(self) -> dict[str, Any]:
        return written(self, "classes", "weight_kind", "inputs", "outputs")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls(document.weight_kind())
        calibrator.classes_ = document.classes()
        curves = 1 if calibrator.classes_ == 2 else calibrator.classes_
        calibrator.inputs_, calibrator.outputs_ = document.curves("inputs", "outputs", curves)
        return calibrator


def _average(mass: Doubles, right: Doubles) -> Doubles:
    """Return the ensemble's levels (U,) for weights (U,) and hits (U,) of increasing inputs."""
    chances, price = right / mass, math.log(max(float(mass.sum()), 2.0))
    isotonic = scipy.optimize.isotonic_regression(chances, weights=mass)
    final = price * (len(isotonic.blocks) - 1) - 2 * _log_likelihood(np.asarray(isotonic.x), mass, right)
    # More blocks than this cannot be outweighed by any likelihood.
    most = (final - 2 * math.log(_NEGLIGIBLE)) / price
    criteria: dict[int, float] = {}
    path, seen = NearIsotonicPath(chances, mass), math.inf
    for step, count in enumerate(path.steps()):
        if count <= most and (count <= _EVERY_STEP or count <= 0.99 * seen):
            seen = count
            starts, levels = path.blocks()
            gain = _log_likelihood(np.clip(levels, 0, 1), np.add.reduceat(mass, starts), np.add.reduceat(right, starts))
            criteria[step] = price * count - 2 * gain
    best = min(criteria.values())
    shares = {step: math.exp((best - value) / 2) for step, value in criteria.items()}
    shares = {step: share for step, share in shares.items() if share >= _NEGLIGIBLE}
    total, result = sum(shares.values()), np.zeros(len(mass))
    path = NearIsotonicPath(chances, mass)
    for step, _ in enumerate(path.steps()):
        if step in shares:
            starts, levels = path.blocks()
            result += shares[step] / total * np.repeat(levels, np.diff(starts, append=len(mass)))
    return result


def _log_likelihood(levels: Doubles, mass: Doubles, right: Doubles) -> float:
    return float(np.sum(scipy.special.xlogy(right, levels) + scipy.special.xlog1py(mass - right, -levels)))
