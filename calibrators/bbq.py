"""Bayesian binning into quantiles: all histograms at once, each as far as the labels make it likely."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self, final

import numpy as np
import numpy.typing as npt
from scipy import special

from calibrators.arrays import Doubles
from calibrators.documents import Document
from calibrators.effective_rows import WEIGHT_KINDS, WeightKind, counting_weight
from calibrators.one_vs_rest import OneVsRest
from calibrators.sorted_scores import sort_scores
from calibrators.validation import check_choice

# Total prior rows N′ of a binning, shared evenly by its bins.
_PRIOR_ROWS = 2.0
# Binnings range from ∛n / C to C ∛n bins.
_SPAN = 10
# Binnings less likely than the best by this factor are left out.
_NEGLIGIBLE = 1e-6


@final
class BBQ(OneVsRest):
    """Averages histograms with from ∛n / 10 to 10 ∛n equal-mass bins, weighted by their Bayesian score.

    In a binning M of B bins, the chance of a hit in a bin has a Beta prior worth 2 / B rows with its mean in the bin's
    middle; the score of M is the probability of all labels under that prior, and the value of a bin its posterior mean.
    Binnings less than 1e-6 as likely as the best are left out. The average of step functions is one step function,
    which is all that is kept. Bins are right-closed and of the probability; ties are never split. Values are never 0 or
    1. With two classes there is one curve, for class 1; with more, one for each class, and rows are divided by their
    sum. Not symmetric: bins are counted from the low scores and end at one, so with the classes exchanged some rows
    near an edge fall into the next step, which may be a high one.

    Preserves: nothing for certain; all probabilities of one step become equal.
    When to use: two classes and hundreds of labels, where `histogram` would need a number of bins.

    Args:
        weight_kind: What sample weights count for in n and in the bins: ``"importance"`` (they add up to the Kish
            effective number of rows) or ``"frequency"`` (a weight of 3 is a row seen three times).

    Attributes:
        edges_: One array for each curve, (B + 1,) from 0 to 1.
        values_: Likewise (B,), in (0, 1).

    Raises:
        CalibrationDataError: Another weight kind.

    References:
        Naeini, Cooper, Hauskrecht (2015), Obtaining well calibrated probabilities using Bayesian binning, section 3.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[0.0, 2.0]] * 4)
        >>> BBQ().fit(logits, np.array([1, 1, 1, 0])).predict_proba(logits[:1]).round(4)
        array([[0.3333, 0.6667]])
    """

    name: ClassVar[str] = "bbq"
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = False

    edges_: list[Doubles]
    values_: list[Doubles]

    def __init__(self, weight_kind: WeightKind = "importance") -> None:
        check_choice(weight_kind, WEIGHT_KINDS, "weight_kind")
        self.weight_kind = weight_kind

    def _fit_curve(self, scores: Doubles, hits: npt.NDArray[np.bool_], weight: Doubles | None) -> Doubles:
        if len(scores) == 0:
            # Nothing is known: the one bin of the prior.
            return np.array([[0.0, 1.0], [0.5, 0.5]])
        counted = None if weight is None else counting_weight(weight, len(scores), self.weight_kind)
        ordered = sort_scores(special.expit(scores), hits, counted)
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

    def _evaluate(self, scores: Doubles, curve: int) -> tuple[Doubles, Doubles]:
        edges, values = self.edges_[curve], self.values_[curve]
        chance = values[np.searchsorted(edges[1:-1], special.expit(scores), side="left")]
        return chance, 1 - chance

    def _keep(self, curves: list[Doubles]) -> None:
        self.edges_ = [curve[0] for curve in curves]
        self.values_ = [curve[1, :-1] for curve in curves]

    def _parameters(self) -> dict[str, Any]:
        return {
            "classes": self.classes_,
            "weight_kind": self.weight_kind,
            "edges": [edges.tolist() for edges in self.edges_],
            "values": [values.tolist() for values in self.values_],
        }

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls(document.weight_kind())
        calibrator.classes_ = document.count("classes", least=2)
        curves = 1 if calibrator.classes_ == 2 else calibrator.classes_
        calibrator.edges_ = document.rows_of_numbers("edges", 0.0, 1.0)
        calibrator.values_ = document.rows_of_numbers("values", 0.0, 1.0)
        for field, lists in (("edges", calibrator.edges_), ("values", calibrator.values_)):
            if len(lists) != curves:
                document.refuse(field, f"{len(lists)} lists", f"{curves}, as 'classes' says")
        for i, (edges, values) in enumerate(zip(calibrator.edges_, calibrator.values_, strict=True)):
            document.check_edges(f"edges[{i}]", edges, len(edges))
            if len(values) != len(edges) - 1:
                document.refuse(f"values[{i}]", f"{len(values)} values", f"{len(edges) - 1}, one for each bin")
            if not ((values > 0) & (values < 1)).all():
                document.refuse(f"values[{i}]", "a value of 0 or 1", "values strictly between 0 and 1")
        return calibrator


def _binning(inputs: Doubles, mass: Doubles, right: Doubles, bins: int) -> tuple[Doubles, Doubles, float]:
    """One equal-mass binning: edges (B + 1,), posterior means (B,), and its log score.

    Args:
        inputs: (U,) increasing probabilities.
        mass: (U,) cumulated weight there.
        right: (U,) cumulated weight of hits.
        bins: Number of bins wanted; ties may leave fewer.
    """
    # The slack keeps a boundary that rounding has moved by an ulp where repeated rows would have put it.
    last = np.searchsorted(mass, mass[-1] * (1 - 1e-12) * np.arange(1, bins) / bins)
    last = np.unique(np.append(last, len(inputs) - 1))
    edges = np.concatenate([[0.0], inputs[last[:-1]], [1.0]])
    total = np.diff(mass[last], prepend=0.0)
    hits = np.clip(np.diff(right[last], prepend=0.0), 0.0, total)
    worth = _PRIOR_ROWS / len(last)
    # A middle that rounds to 0 or 1 would be a prior that is certain.
    ones = worth * np.clip((edges[:-1] + edges[1:]) / 2, 1e-9, 1 - 1e-9)
    score = special.betaln(hits + ones, total - hits + worth - ones) - special.betaln(ones, worth - ones)
    return edges, (hits + ones) / (total + worth), float(score.sum())
