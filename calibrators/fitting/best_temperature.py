"""Find the temperature of temperature scaling by Newton's method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrators.arrays import Doubles, Floats
from calibrators.chunks import check_label_logits, check_maxima, row_chunks, row_maxima
from calibrators.errors import no_convergence
from calibrators.validation import LabelledRows

LOWEST_TEMPERATURE = 0.05
HIGHEST_TEMPERATURE = 20.0

_WARM_START_ROWS = 2_000
_ENTRIES_KEPT = 262_144
_FEW_CLASSES = 32
# Tolerances of log(1/T): on the sample, and on all rows, where it costs 1e-12 of the NLL.
_SAMPLE_TOLERANCE, _TOLERANCE = 5e-3, 2e-6
_MAX_STEPS, _PATIENCE = 100, 12
_LITTLE = 2.0**-64


def best_temperature(rows: LabelledRows) -> tuple[float, bool]:
    """Return the T in [0.05, 20] with the least mean NLL, and whether the optimum lies at or beyond a bound.

    Raises:
        CalibrationDataError: Invalid logits, or a row whose own label has a probability of zero.
        CalibrationFitError: No convergence, which convexity rules out.
    """
    rows, start = rows.relative(), 0.0
    if len(rows.labels) > 4 * _WARM_START_ROWS:
        step = len(rows.labels) // _WARM_START_ROWS
        weight = None if rows.weight is None else rows.weight[::step]
        sample = _minimise(LabelledRows(rows.logits[::step], rows.labels[::step], weight), start, _SAMPLE_TOLERANCE)
        start = 0.0 if sample.at_bound else sample.log_inverse
    optimum = _minimise(rows, start, _TOLERANCE)
    return optimum.temperature, optimum.at_bound


@dataclass(frozen=True, slots=True)
class _Optimum:
    log_inverse: float
    at_bound: bool

    @property
    def temperature(self) -> float:
        if self.at_bound:
            return HIGHEST_TEMPERATURE if self.log_inverse < 0 else LOWEST_TEMPERATURE
        return math.exp(-self.log_inverse)


@dataclass(frozen=True, slots=True)
class _Derivatives:
    """Derivatives of the total NLL by β = 1/T; `missed`: some label does not have its row's largest logit."""

    slope: float
    curvature: float
    missed: bool


def _minimise(rows: LabelledRows, start: float, tolerance: float) -> _Optimum:
    """Find θ = log(1/T) to within ``tolerance``, by Newton steps from ``start`` inside a bracket of opposite slopes."""
    low = bottom = -math.log(HIGHEST_TEMPERATURE)
    high = top = -math.log(LOWEST_TEMPERATURE)
    theta = min(max(start, bottom), top)
    untried = {bottom, top}
    differentiate = _differentiator(rows)
    before = 0.0
    for step in range(_MAX_STEPS):
        beta = math.exp(theta)
        with np.errstate(over="ignore", invalid="ignore"):
            at = differentiate(beta)
        if not math.isfinite(at.slope):
            # Sums of huge logits overflow unless they weigh little; only ratios of weights matter.
            weight = np.ones(len(rows.labels)) if rows.weight is None else rows.weight
            return _minimise(LabelledRows(rows.logits, rows.labels, weight * _LITTLE), start, tolerance)
        if step == 0 and not at.missed:
            return (
                _Optimum(top, at_bound=True) if _depends_on_temperature(rows.logits) else _Optimum(0.0, at_bound=False)
            )
        if at.slope == 0:
            return _Optimum(theta, at_bound=False)
        if theta == (bottom if at.slope > 0 else top):
            return _Optimum(theta, at_bound=True)
        untried.discard(theta)
        if at.slope > 0:
            high = theta
        else:
            low = theta
        slope, curvature = beta * at.slope, beta * (beta * at.curvature + at.slope)
        following = theta - slope / curvature if curvature > 0 else math.copysign(math.inf, -slope)
        inside = low < following < high
        if step >= _PATIENCE and step % 2:
            # Very unequal weights make slopes exponential, and Newton's method slow.
            inside, following = False, (low + high) / 2
        elif not inside:
            end = high if following >= high else low
            following = end if end in untried else (low + high) / 2
        # Newton's steps s₁, s₂ are followed by about s₂² (s₂ / s₁²), which predicts the rest, with a margin.
        move = abs(following - theta)
        left = 4 * move**2 * max(1.0, move / before**2) if inside and before else move
        if min(left, move) < tolerance:
            return _Optimum(following, at_bound=False)
        theta, before = following, move if inside else 0.0
    raise no_convergence("temperature", f"log(1/T) in ({low:g}, {high:g})", f"log(1/T) to {tolerance:g}")


def _differentiator(rows: LabelledRows) -> Callable[[float], _Derivatives]:
    """Return the derivatives of the rows' NLL as a function of β; few rows are prepared once, many anew for each β."""
    if rows.logits.shape[1] == 2:
        return lambda beta: _binary_derivatives(rows, beta)
    if rows.logits.size > _ENTRIES_KEPT:
        return lambda beta: _derivatives(rows, _below_maxima(rows), beta)
    kept = list(_below_maxima(rows))
    return lambda beta: _derivatives(rows, kept, beta)


def _below_maxima(rows: LabelledRows) -> Iterator[tuple[slice, Floats, Doubles]]:
    """Yield row slices, d = z − max z, and d (n,) of the labels.

    d has the shape (K, n) for few classes and (n, K) for many: sums over classes are fastest that way.
    """
    logits, labels = rows.logits, rows.labels
    dtype = np.float64 if logits.dtype == np.float64 else np.float32
    for part in row_chunks(*logits.shape):
        chunk: Floats = np.ascontiguousarray(logits[part], dtype)
        maxima = row_maxima(chunk)
        check_maxima(maxima, chunk, part.start)
        with np.errstate(over="ignore", invalid="ignore"):
            below = chunk - maxima
        label_below = below[np.arange(len(below)), labels[part]].astype(np.float64)
        if below.shape[1] <= _FEW_CLASSES:
            below = np.ascontiguousarray(below.T)
        yield part, below, label_below


def _derivatives(rows: LabelledRows, chunks: Iterable[tuple[slice, Floats, Doubles]], beta: float) -> _Derivatives:
    """Return both derivatives in one pass: with moments of d = z − max z under softmax(β d), slope = E[d] − d_label."""
    moments = _column_moments if rows.logits.shape[1] <= _FEW_CLASSES else _row_moments
    slope = curvature = 0.0
    missed = False
    for part, below, label_below in chunks:
        with np.errstate(over="ignore", invalid="ignore"):
            mean, variance = moments(below, beta)
            if not np.isfinite(variance).all():
                check_label_logits(label_below, rows.labels, part.start)
                mean, variance = moments(np.maximum(below, _floor(below.dtype)), beta)
        difference = mean - label_below
        if rows.weight is None:
            slope += float(difference.sum())
            curvature += float(variance.sum())
        else:
            slope += float(difference @ rows.weight[part])
            curvature += float(variance @ rows.weight[part])
        missed = missed or bool(np.minimum.reduce(label_below) < 0)
    return _Derivatives(slope, curvature, missed)


def _row_moments(below: Floats, beta: float) -> tuple[Doubles, Doubles]:
    """Return mean and variance (n,) of each row of ``below`` (n, K) under softmax(β · below)."""
    shares = np.multiply(below, below.dtype.type(beta))
    np.exp(shares, out=shares)
    total = np.add.reduce(shares, axis=1).astype(np.float64)
    first = np.vecdot(shares, below).astype(np.float64)
    shares *= below
    mean = first / total
    return mean, np.vecdot(shares, below).astype(np.float64) / total - mean * mean


def _column_moments(below: Floats, beta: float) -> tuple[Doubles, Doubles]:
    """Return the same for the columns of ``below`` (K, n)."""
    shares = np.multiply(below, below.dtype.type(beta))
    np.exp(shares, out=shares)
    total = np.add.reduce(shares, axis=0).astype(np.float64)
    shares *= below
    mean = np.add.reduce(shares, axis=0).astype(np.float64) / total
    shares *= below
    return mean, np.add.reduce(shares, axis=0).astype(np.float64) / total - mean * mean


def _binary_derivatives(rows: LabelledRows, beta: float) -> _Derivatives:
    """Return the derivatives for two classes: with u the other logit minus the label's, NLL = log(1 + exp(β u))."""
    logits, labels, weight = rows.logits, rows.labels, rows.weight
    dtype = np.float64 if logits.dtype == np.float64 else np.float32
    signs = np.array([1, -1], dtype=dtype)
    slope = curvature = 0.0
    missed = False
    for part in row_chunks(*logits.shape):
        chunk = logits[part]
        with np.errstate(over="ignore", invalid="ignore"):
            deficit = np.subtract(chunk[:, 1], chunk[:, 0], dtype=dtype)
            deficit *= signs[labels[part]]
            first, second = _logistic_moments(deficit, beta, weight, part)
            if not math.isfinite(first + second):
                check_maxima(np.maximum.reduce(chunk, axis=1), chunk, part.start)
                check_label_logits(-deficit, labels, part.start)
                first, second = _logistic_moments(np.maximum(deficit, _floor(deficit.dtype)), beta, weight, part)
        slope += first
        curvature += second
        missed = missed or bool(np.maximum.reduce(deficit) > 0)
    return _Derivatives(slope, curvature, missed)


def _logistic_moments(deficit: Floats, beta: float, weight: Doubles | None, part: slice) -> tuple[float, float]:
    """Return Σ u σ(β u) and Σ u² σ(β u) (1 − σ(β u)) over one chunk of u."""
    share = np.multiply(deficit, deficit.dtype.type(-beta))
    np.exp(share, out=share)
    share += 1
    np.divide(deficit, share, out=share)
    second = (deficit - share) * share
    if weight is None:
        return float(np.add.reduce(share, dtype=np.float64)), float(np.add.reduce(second, dtype=np.float64))
    return float(share @ weight[part]), float(second @ weight[part])


def _floor(dtype: np.dtype[Any]) -> float:
    """Return a lower limit for differences that is exact: below it, shares underflow to zero at every T in range."""
    return -15_000.0 if dtype == np.float64 else -2_200.0


def _depends_on_temperature(logits: Floats) -> bool:
    """Return whether some row has two different finite logits."""
    for part in row_chunks(*logits.shape):
        chunk = logits[part]
        maxima = np.maximum.reduce(chunk, axis=1, keepdims=True)
        if ((chunk < maxima) & (chunk > -np.inf)).any():
            return True
    return False
