"""Bayesian binning into quantiles: an average of histograms, weighted by their probability."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt
import scipy

from calibrators.arrays import Doubles
from calibrators.binning import raised_edges
from calibrators.documents import Document, written
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind, counting_weight
from calibrators.fitting.curves import StackedSteps
from calibrators.fitting.sorted_scores import sort_scores
from calibrators.methods.one_vs_rest import OneVsRest
from calibrators.validation import check_choice

# Total prior rows N′ of a binning, shared evenly by its bins.
_PRIOR_ROWS = 2.0
# Binnings range from ∛n / C to C ∛n bins.
_SPAN = 10
# Binnings less likely than the best by this factor are dropped.
_NEGLIGIBLE = 1e-6


@final
class BBQ(OneVsRest):
    """Average histograms of ∛n / 10 to 10 ∛n equal-mass bins, weighted by their Bayesian score.

    In a binning of B bins, the chance of a hit in a bin has a Beta prior worth 2 / B rows with its mean in the bin's
    middle. The score is the probability of all labels under that prior, and a bin's value is its posterior mean.
    Binnings less than 1e-6 as likely as the best are dropped. Only the average, one step function, is kept. Bins are
    right-closed and split no ties; values are never 0 or 1. With two classes there is one curve, for class 1; with
    more, one per class, and rows are divided by their sum. Not symmetric: bins are counted from the low scores, so
    exchanging the classes moves some rows near an edge into the next step.

    Preserves: nothing for certain; all probabilities of one step become equal.
    When to use: two classes and hundreds of labels, instead of choosing the bins of `histogram`.

    Args:
        weight_kind: Meaning of sample weights: ``"importance"`` (their sum is the Kish effective number of rows) or
            ``"frequency"`` (a weight of 3 is a row seen three times).

    Attributes:
        edges_: One array per curve, (B + 1,) from 0 to 1.
        values_: One array per curve, (B,), in (0, 1).

    Raises:
        CalibrationDataError: An unknown weight kind.

    References:
        Naeini, Cooper, Hauskrecht (2015), Obtaining well calibrated probabilities using Bayesian binning, section 3.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, 2.0]] * 4)
        >>> BBQ().fit(logits, np.array([1, 1, 1, 0])).predict_proba(logits[:1]).round(4)
        array([[0.3333, 0.6667]])
    """

    name: ClassVar[str] = "bbq"

    edges_: list[Doubles]
    values_: list[Doubles]

    def __init__(self, weight_kind: WeightKind = "importance") -> None:
        check_choice(weight_kind, WEIGHT_KINDS, "weight_kind")
        self.weight_kind = weight_kind

    def _fit_curve(self, scores: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None) -> Doubles:
        if len(scores) == 0:
            # Without rows, the single bin of the prior.
            return np.array([[0.0, 1.0], [0.5, 0.5]])
        counted = None if weight is None else counting_weight(weight, len(scores), self.weight_kind)
        ordered = sort_scores(scores, hits, counted)
        starts = ordered.distinct()
        inputs, (mass, right) = ordered.scores[starts], ordered.totals(starts)
        np.cumsum(mass, out=mass)
        np.cumsum(right, out=right)
        rows = float(mass[-1])
        fewest = max(1, math.floor(rows ** (1 / 3) / _SPAN))
        most = min(len(inputs), max(1, math.ceil(rows ** (1 / 3) * _SPAN)))
        binnings = [_binning(inputs, mass, right, bins) for bins in range(min(fewest, most), most + 1)]
        scored = np.array([score for _, _, score in binnings])
        shares = np.exp(scored - scored.max())
        shares[shares < _NEGLIGIBLE] = 0
        shares /= shares.sum()
        kept = [(share, edges, values) for share, (edges, values, _) in zip(shares, binnings, strict=True) if share > 0]
        upper = np.unique(np.concatenate([edges[1:] for _, edges, _ in kept]))
        average = np.zeros(len(upper))
        for share, edges, values in kept:
            average += share * values[np.searchsorted(edges[1:-1], upper, side="left")]
        edges = np.concatenate([[0.0], upper])
        return np.stack([edges, np.append(average, average[-1])])

    def _evaluate(self, scores: Doubles, curve: int) -> Doubles:
        chances: Doubles = self.values_[curve][np.searchsorted(self.edges_[curve][1:-1], scores, side="left")]
        return chances

    def _points(self) -> int:
        return sum(map(len, self.edges_))

    def _stack(self) -> StackedSteps:
        return StackedSteps([edges[1:-1] for edges in self.edges_], self.values_, "left")

    def _evaluate_stacked(self, stack: StackedSteps, scores: Doubles) -> Doubles:
        return stack(scores)

    def _keep(self, curves: list[Doubles]) -> None:
        self.edges_ = [curve[0] for curve in curves]
        self.values_ = [curve[1, :-1] for curve in curves]

    def _parameters(self) -> dict[str, Any]:
        return written(self, "classes", "weight_kind", "edges", "values")

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls(document.weight_kind())
        calibrator.classes_ = document.classes()
        curves = 1 if calibrator.classes_ == 2 else calibrator.classes_
        calibrator.edges_, calibrator.values_ = document.histograms(curves)
        return calibrator


def _binning(inputs: Doubles, mass: Doubles, right: Doubles, bins: int) -> tuple[Doubles, Doubles, float]:
    """Return one equal-mass binning: edges (B + 1,), posterior means (B,), and its log score.

    Args:
        inputs: (U,) increasing probabilities.
        mass: (U,) cumulated weight there.
        right: (U,) cumulated weight of hits.
        bins: Requested number of bins; ties may leave fewer.
    """
    # The slack undoes rounding by an ulp, so that weights act like repeated rows.
    last = np.searchsorted(mass, mass[-1] * (1 - 1e-12) * np.arange(1, bins) / bins)
    last = np.unique(np.append(last, len(inputs) - 1))
    edges = np.concatenate([[0.0], raised_edges(inputs[last[:-1]], inputs[last[:-1] + 1]), [1.0]])
    total = np.diff(mass[last], prepend=0.0)
    hits = np.clip(np.diff(right[last], prepend=0.0), 0.0, total)
    worth = _PRIOR_ROWS / len(last)
    # A middle that rounds to 0 or 1 would make the prior certain.
    ones = worth * np.clip((edges[:-1] + edges[1:]) / 2, 1e-9, 1 - 1e-9)
    score = scipy.special.betaln(hits + ones, total - hits + worth - ones) - scipy.special.betaln(ones, worth - ones)
    return edges, (hits + ones) / (total + worth), float(score.sum())
