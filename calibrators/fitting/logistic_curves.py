"""Fit one-vs-rest curves p = σ(θ · φ(s)) of log-odds s, all curves in the same passes over the rows.

A curve has one or two columns computed from s, each centred and scaled to the order of one, features of these columns,
and a constant. Newton's method needs about ten passes from scratch, and two from near the optimum, so the first passes
read growing samples of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from calibrators.arrays import Doubles
from calibrators.fitting.logistic import Expansions, Indices, Scratch, minimum
from calibrators.fitting.score_chunks import ScoreChunks

# Rows that determine the columns' centres and scales, and rows of the samples.
_SPREAD_ROWS = 1024
_SAMPLE_ROWS, _SAMPLE_ROWS_A_CURVE = 4096, 64
_LARGEST_SHARE, _SAMPLE_SHARE = 8, 16
# Relative differences up to this are rounding.
_FLAT = 1e-12


@dataclass(frozen=True, slots=True)
class CurveShape:
    """The form of a method's curve.

    Attributes:
        columns: Makes columns (C, n) of log-odds (C, n), each monotone in them.
        features: Makes features (C, n) of centred and scaled columns.
        linear: Indices of the features that are the columns themselves.
        bounded: Number of leading parameters that must be 0 or more.
        ridge: Strength of the pull of parameters to zero; those of ``linear`` are pulled to one, or, if a column's unit
            is less than one, to one for the unscaled column.
        soft_targets: Labels count as Platt's targets.
        shrinkage: Strength, divided by the number of rows, of a second ridge on the slopes of the unscaled columns,
            pulled to ``slope``, and on the constant, pulled to zero. Only if all features are columns.
        slope: See ``shrinkage``.
    """

    columns: Callable[[Doubles], list[Doubles]]
    features: Callable[[list[Doubles]], list[Doubles]]
    linear: tuple[int, ...]
    bounded: int
    ridge: float
    soft_targets: bool
    shrinkage: float = 0.0
    slope: float = 1.0


@dataclass(frozen=True, slots=True)
class CurveFit:
    """Fitted curves.

    Attributes:
        theta: (C, D), the constant last.
        centres: (C, J) of the columns.
        scales: (C, J), above 0; infinite for a constant column, which taught nothing.
    """

    theta: Doubles
    centres: Doubles
    scales: Doubles


def fit_curves(source: ScoreChunks, shape: CurveShape, frequency: bool = False) -> CurveFit:
    """Fit all curves.

    Args:
        source: The log-odds.
        shape: The form of the curves.
        frequency: Weights count how often a row was seen, for soft targets and shrinkage.

    Raises:
        CalibrationDataError: Invalid logits.
        CalibrationFitError: No convergence.
    """
    totals = _Totals(source)
    columns = _Columns(source, shape, totals)
    size = len(shape.features([np.zeros((1, 1)) for _ in range(columns.count)])) + 1
    theta = np.zeros((source.curves, size))
    rows = len(source.rows.labels)
    enough = max(_SAMPLE_ROWS, _SAMPLE_ROWS_A_CURVE * source.curves)
    scratch = Scratch()
    steps, step = [], _LARGEST_SHARE
    while rows // step >= enough:
        steps.append(step)
        step *= _SAMPLE_SHARE
    for step in reversed(steps):
        part = source.every(step)
        found = _Totals(part)
        # Platt's targets for every method: the sample may be separable even if the rows are not.
        objective = _Objective(part, shape, columns, found, found.targets(True, frequency), scratch, frequency)
        theta = minimum(objective.expand, theta, shape.bounded, done=0.1 * size * step / rows)
    targets = totals.targets(shape.soft_targets, frequency)
    objective = _Objective(source, shape, columns, totals, targets, scratch, frequency)
    return CurveFit(minimum(objective.expand, theta, shape.bounded), columns.centres, columns.scales)


class _Totals:
    """Totals over all rows, (C,) each.

    Attributes:
        mass: Sum of weights relative to the largest; 1 without rows.
        squares: Sum of their squares.
        hits: Sum of those of hits.
        least: Least log-odds.
        most: Largest log-odds.
    """

    def __init__(self, source: ScoreChunks) -> None:
        curves = source.curves
        self.mass, self.squares, self.hits = np.zeros((3, curves))
        self.least, self.most = np.full(curves, np.inf), np.full(curves, -np.inf)
        self.largest = source.largest
        for chunk in source.chunks():
            if chunk.mass is None:
                self.mass += chunk.scores.shape[1]
                self.squares += chunk.scores.shape[1]
                self.hits += source.count_hits(chunk.part)
            else:
                mass = np.atleast_2d(chunk.mass)
                self.mass += np.add.reduce(mass, axis=1)
                self.squares += np.vecdot(mass, mass)
                self.hits += source.sums_of_hits([mass], chunk.part)[:, 0]
            low = high = chunk.scores
            if chunk.mass is not None and chunk.mass.ndim == 2:
                low, high = (np.where(chunk.mass > 0, chunk.scores, end) for end in (np.inf, -np.inf))
            np.minimum(self.least, np.minimum.reduce(low, axis=1), out=self.least)
            np.maximum(self.most, np.maximum.reduce(high, axis=1), out=self.most)
        self.empty = self.mass == 0
        self.mass[self.empty] = 1
        self.least[self.empty], self.most[self.empty] = 0, 0

    def rows(self, frequency: bool) -> Doubles:
        """Return the number of rows (C,) that the weights are worth."""
        # If weights are so small that their squares vanish, they are worth one row.
        worth = np.divide(self.mass, self.squares, out=1 / self.mass, where=self.squares > 0)
        return np.asarray(self.mass * (self.largest if frequency else worth))

    def targets(self, soft: bool, frequency: bool) -> tuple[Doubles, Doubles]:
        """Return the targets of hits and of misses, (C,) each."""
        if not soft:
            return np.ones_like(self.mass), np.zeros_like(self.mass)
        rows = self.rows(frequency)
        hits = rows * (self.hits / self.mass)
        return (hits + 1) / (hits + 2), 1 / (rows - hits + 2)


class _Columns:
    """Columns of log-odds minus their median, in units of the median distance from it or a millionth of the farthest.

    Outliers, or a few thousand rows more or less, do not move these, so a sample is enough.

    Attributes:
        centres: (C, J).
        scales: (C, J); infinite for a column that is constant up to rounding; it then becomes zero.
        count: J.
    """

    def __init__(self, source: ScoreChunks, shape: CurveShape, totals: _Totals) -> None:
        self._shape = shape
        self.count = len(shape.columns(np.zeros((1, 1))))
        part = source.every(max(1, len(source.rows.labels) // _SPREAD_ROWS))
        seen = []
        for chunk in part.chunks():
            scores = chunk.scores.copy()
            if chunk.mass is not None and chunk.mass.ndim == 2:
                scores[chunk.mass == 0] = np.nan
            seen.append(scores)
        scores = np.concatenate(seen, axis=1)
        unseen = np.isnan(scores).all(axis=1)
        scores[unseen, 0] = totals.least[unseen] / 2 + totals.most[unseen] / 2
        ends = shape.columns(np.stack([totals.least, totals.most], axis=1))
        self.centres, self.scales = np.empty((source.curves, self.count)), np.empty((source.curves, self.count))
        for j, (column, end) in enumerate(zip(shape.columns(scores), ends, strict=True)):
            centre = np.clip(np.nanmedian(column, axis=1), end[:, 0], end[:, 1])
            away = np.abs(column - centre[:, None])
            farthest = np.maximum(end[:, 1] - centre, centre - end[:, 0])
            typical = np.nanmedian(away, axis=1)
            # In units of the farthest, so that the sum does not overflow.
            unit = np.where(farthest > 0, farthest, 1.0)
            typical = np.where(typical > 0, typical, np.nanmean(away / unit[:, None], axis=1) * unit)
            typical = np.where(typical > 0, typical, farthest)
            # Fourth powers of the farthest values must not drown all others.
            typical = np.maximum(typical, 1e-6 * farthest)
            flat = (farthest <= _FLAT * np.abs(end).max(axis=1)) | (typical < 1e-290)
            self.centres[:, j], self.scales[:, j] = centre, np.where(flat, np.inf, typical)

    def features(self, scores: Doubles, curves: Indices) -> list[Doubles]:
        """Return features (C, n) of log-odds (C, n) of the given curves."""
        columns = []
        for j, column in enumerate(self._shape.columns(scores)):
            standard = column - self.centres[curves, j : j + 1]
            standard *= 1 / self.scales[curves, j : j + 1]
            columns.append(standard)
        return self._shape.features(columns)


class _Objective:
    """Mean log losses of curves, and ridge; the contribution of the targets is summed up in the first pass."""

    def __init__(
        self,
        source: ScoreChunks,
        shape: CurveShape,
        columns: _Columns,
        totals: _Totals,
        targets: tuple[Doubles, Doubles],
        scratch: Scratch,
        frequency: bool,
    ) -> None:
        self._source = source
        self._shape = shape
        self._columns = columns
        self._totals = totals
        self._targets = targets
        self._worth = totals.rows(frequency)
        self._scratch = scratch
        self._sums: Doubles | None = None

    def expand(self, theta: Doubles, curves: Indices) -> Expansions:
        """Return value, gradient and Hessian of the curves (A,) at their θ (A, D); the first call takes all curves."""
        at = Expansions(theta)
        hits, all_rows = np.zeros((2, len(theta), theta.shape[1] - 1))
        for chunk in self._source.chunks(curves):
            features = self._columns.features(chunk.scores, curves)
            at.add(features, chunk.mass, self._scratch)
            if self._sums is None:
                if chunk.mass is not None:
                    features = [feature * chunk.mass for feature in features]
                all_rows += np.stack([np.add.reduce(feature, axis=1) for feature in features], axis=1)
                hits += self._source.sums_of_hits(features, chunk.part)
        if self._sums is None:
            hit, miss = self._targets
            hits = np.column_stack([hits, self._totals.hits])
            all_rows = np.column_stack([all_rows, np.where(self._totals.empty, 0, self._totals.mass)])
            self._sums = (hit - miss)[:, None] * hits + (miss - 0.5)[:, None] * all_rows
        ridge, centre = self._ridge(curves, theta.shape[1])
        return at.close(self._totals.mass[curves], self._sums[curves], ridge, centre)

    def _ridge(self, curves: Indices, size: int) -> tuple[float | Doubles, Doubles]:
        """Return the ridges of curves, (A, D, D) or one number, and the θ (A, D) that they pull to."""
        scales, linear = self._columns.scales[curves], self._shape.linear
        centre = np.zeros((len(scales), size))
        if self._shape.shrinkage == 0:
            centre[:, linear] = np.minimum(scales, 1)
            return self._shape.ridge, centre
        # Slopes and constant of the columns themselves: these do not depend on how often a row was seen.
        centres, flat = self._columns.centres[curves], np.isinf(scales)
        plain = np.tile(np.eye(size), (len(scales), 1, 1))
        plain[:, linear, linear] = 1 / scales
        plain[:, -1, linear] = -centres / scales
        centre[:, linear] = np.where(flat, 0.0, scales * self._shape.slope)
        centre[:, -1] = np.where(flat, 0.0, centres * self._shape.slope).sum(axis=1)
        shrinkage = self._shape.shrinkage / self._worth[curves]
        return shrinkage[:, None, None] * (plain.transpose(0, 2, 1) @ plain) + np.eye(size) * self._shape.ridge, centre
