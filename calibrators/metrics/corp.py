"""CORP: reliability by isotonic regression, without bins, and the decomposition of a score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import scipy

from calibrators.arrays import ArrayLike, Doubles
from calibrators.effective_rows import WeightKind
from calibrators.metrics.intervals import check_level
from calibrators.metrics.kolmogorov_smirnov import residuals_by_confidence
from calibrators.metrics.rows import TopLabels, check_weight_kind, top_labels
from calibrators.validation import check_choice, check_count, check_resamples

Score: TypeAlias = Literal["brier", "log"]
SCORES: tuple[Score, ...] = ("brier", "log")
_BAND_POINTS = 1_024


@dataclass(frozen=True, slots=True)
class CorpDecomposition:
    """Parts of a mean score: ``score = miscalibration − discrimination + uncertainty`` exactly.

    Attributes:
        score: Score of the probabilities as they are.
        miscalibration: Gain of the best non-decreasing recalibration; 0 or more.
        discrimination: Gain of that recalibration over one constant probability; 0 or more, higher is better.
        uncertainty: Score of the constant probability, the event's frequency.
    """

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float


@dataclass(frozen=True, slots=True, eq=False)
class CorpCurve:
    """A reliability curve without bins; one entry per distinct probability, increasing; U of them.

    Attributes:
        probability: (U,) stated.
        frequency: (U,) isotonic estimate of the event's frequency there.
        lower: (U,) lower end of the band that holds a calibrated model's curve with the given probability at each
            point.
        upper: (U,) upper end.
        share: (U,) of all weight; sums to one.
    """

    probability: Doubles
    frequency: Doubles
    lower: Doubles
    upper: Doubles
    share: Doubles


def corp_decomposition(
    probabilities: ArrayLike,
    labels: ArrayLike,
    score: Score = "brier",
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
) -> CorpDecomposition:
    """Split a proper score of one probability per row into miscalibration, discrimination and uncertainty.

    ``score`` is ``"brier"``: mean of (p − y)², half of `brier_score` with two classes; or ``"log"``: mean of −log of
    the probability of the outcome, infinite if that was zero. With c the isotonic regression of the outcomes on the
    probabilities and m their mean, miscalibration is score(p) − score(c), discrimination score(m) − score(c),
    uncertainty score(m). Miscalibration is biased upwards on finite data, since the curve also fits noise.

    References:
        Dimitriadis, Gneiting, Jordan (2021), Stable reliability diagrams for probabilistic classifiers, eq. 4 to 6.

    Example:
        >>> parts = corp_decomposition([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]], [0, 0, 1])
        >>> round(parts.miscalibration, 4), round(parts.discrimination, 4), round(parts.uncertainty, 4)
        (0.1267, 0.2222, 0.2222)
    """
    check_choice(score, SCORES, "score")
    rows = top_labels(probabilities, labels, sample_weight, predicted, positive)
    stated, frequency, weight = _pooled(rows)
    share = weight / weight.sum()
    fitted = _isotonic(frequency, weight)
    overall = np.full(len(share), min(float(share @ frequency), 1.0))
    raw, best, flat = (_mean_score(guess, frequency, share, score) for guess in (stated, fitted, overall))
    return CorpDecomposition(raw, max(raw - best, 0.0), max(flat - best, 0.0), flat)


def corp_reliability(
    probabilities: ArrayLike,
    labels: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    predicted: ArrayLike | None = None,
    positive: int | None = None,
    level: float = 0.9,
    resamples: int = 400,
    seed: int = 0,
    weight_kind: WeightKind = "importance",
) -> CorpCurve:
    """Return a reliability curve by isotonic regression, with consistency bands.

    The bands show where the curve of a calibrated model would lie at each point (not at all points at once), with
    probability ``level``: outcomes are drawn from the probabilities for the same rows and weights, and the regression
    is repeated. Above 1,024 distinct probabilities, neighbours of about equal weight share their draws.

    References:
        Dimitriadis, Gneiting, Jordan (2021), Stable reliability diagrams for probabilistic classifiers; consistency
        resampling: Bröcker, Smith (2007).

    Example:
        >>> curve = corp_reliability([[0.9, 0.1]] * 50 + [[0.6, 0.4]] * 50, [0] * 40 + [1] * 10 + [0] * 30 + [1] * 20)
        >>> curve.probability.tolist(), curve.frequency.tolist()
        ([0.6, 0.9], [0.6, 0.8])
        >>> bool(curve.lower[0] < 0.6 < curve.upper[0]), bool(curve.frequency[1] < curve.lower[1])
        (True, True)
    """
    check_level(level)
    check_resamples(resamples)
    check_count(seed, "seed", least=0)
    rows = top_labels(probabilities, labels, sample_weight, predicted, positive)
    stated, frequency, weight = _pooled(rows)
    check_weight_kind(sample_weight, weight_kind)
    lower, upper = _bands(rows, stated, weight, level, resamples, seed, weight_kind)
    return CorpCurve(stated, _isotonic(frequency, weight), lower, upper, weight / weight.sum())


def _pooled(rows: TopLabels) -> tuple[Doubles, Doubles, Doubles]:
    """Return distinct probabilities, the event's frequency at each, and the weight there."""
    stated, residuals, weight = residuals_by_confidence(rows)
    return stated, np.clip(stated - residuals / weight, 0, 1), weight


def _isotonic(frequency: Doubles, weight: Doubles) -> Doubles:
    return np.clip(scipy.optimize.isotonic_regression(frequency, weights=weight).x, 0, 1)


def _mean_score(guess: Doubles, frequency: Doubles, share: Doubles, score: Score) -> float:
    if score == "brier":
        return float(share @ (frequency * (1 - guess) ** 2 + (1 - frequency) * guess**2))
    return -float(share @ (scipy.special.xlogy(frequency, guess) + scipy.special.xlog1py(1 - frequency, -guess)))


def _bands(
    rows: TopLabels,
    stated: Doubles,
    weight: Doubles,
    level: float,
    resamples: int,
    seed: int,
    weight_kind: WeightKind,
) -> tuple[Doubles, Doubles]:
    """Return pointwise quantiles (U,) of the curves of calibrated worlds."""
    place = (np.cumsum(weight) - weight / 2) / weight.sum() * _BAND_POINTS
    point = np.unique(place.astype(np.intp), return_inverse=True)[1] if len(stated) > _BAND_POINTS else None
    number = np.searchsorted(stated, rows.confidence)
    if point is not None:
        number = point[number]
    size = int(number.max()) + 1
    rng = np.random.default_rng(seed)
    curves = np.empty((resamples, size))
    if rows.weight is None or weight_kind == "frequency":
        times = np.ones(len(number)) if rows.weight is None else rows.weight
        counts = np.bincount(number, times, size).astype(np.int64)
        chance = np.clip(np.bincount(number, times * rows.confidence, size) / counts, 0, 1)
        for curve in curves:
            curve[:] = _isotonic(rng.binomial(counts, chance) / counts, counts.astype(np.float64))
    else:
        total = np.bincount(number, rows.weight, size).astype(np.float64)
        for curve in curves:
            drawn = rng.random(len(number)) < rows.confidence
            curve[:] = _isotonic(np.bincount(number, rows.weight * drawn, size) / total, total)
    lower, upper = np.quantile(curves, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return (lower, upper) if point is None else (lower[point], upper[point])
