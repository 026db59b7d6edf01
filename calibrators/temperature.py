"""Temperature scaling: one number for all logits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np

from calibrators.arrays import Doubles, Floats
from calibrators.calibrator import Calibrator
from calibrators.chunks import check_label_logits, check_maxima, row_chunks, row_maxima, row_sums
from calibrators.documents import Document
from calibrators.errors import CalibrationFitError
from calibrators.validation import LabelledRows

LOWEST_TEMPERATURE = 0.05
HIGHEST_TEMPERATURE = 20.0

_WARM_START_ROWS = 2_000
_ENTRIES_KEPT = 262_144
_FEW_CLASSES = 32
# Of log(1/T): what the sample need not settle, being a sample, and what costs 1e-12 of the NLL.
_SAMPLE_TOLERANCE, _TOLERANCE = 5e-3, 2e-6
_MAX_STEPS, _PATIENCE = 100, 12
_LITTLE = 2.0**-64


@final
class Temperature(Calibrator):
    """Divides all logits by one temperature T > 0: p = softmax(z / T).

    T is the exact minimiser of the mean negative log-likelihood over [0.05, 20]. The objective is convex in 1/T, so
    there is one, found by Newton steps in log(1/T) kept inside a bracket. Data that call for a T outside the range get
    the nearer bound, and `at_bound_` says so: 0.05 when every label has the largest logit (a perfectly separable set
    has no finite optimum), 20 when logits are noise. Where no row's logits differ, T changes nothing, and is 1.

    Logits of float32 with more than 32 classes are divided and exponentiated in float32: each probability is then right
    to 2e-7, and its logarithm to 3e-7 times its distance from zero. All else is computed in float64.

    Preserves: the arg max of every row, so accuracy, up to ties made by rounding; with two classes the order of all
    rows, strictly.
    When to use: first: it mends the overconfidence of most networks. What settles T are the wrong labels, and some 25
        of them do; with a handful T may be far off, and with none it is 0.05, which makes the next error very costly.

    Attributes:
        temperature_: T, in [0.05, 20]; above 1 softens, below 1 sharpens.
        at_bound_: The optimum lies at or beyond a bound of that range.

    References:
        Guo, Pleiss, Sun, Weinberger (2017), On calibration of modern neural networks, section 4.2.

    Example:
        >>> import numpy as np
        >>> logits = np.array([[2.0, 0.0]] * 4)
        >>> calibrator = Temperature().fit(logits, np.array([0, 0, 0, 1]))
        >>> calibrator.predict_proba(logits[:1]).round(6)
        array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "temperature"
    version: ClassVar[int] = 1
    preserves_order: ClassVar[bool] = True
    _single_precision_from: ClassVar[float] = _FEW_CLASSES + 1

    temperature_: float
    at_bound_: bool

    def _fit(self, rows: LabelledRows) -> None:
        rows, start = rows.relative(), 0.0
        if len(rows.labels) > 4 * _WARM_START_ROWS:
            step = len(rows.labels) // _WARM_START_ROWS
            weight = None if rows.weight is None else rows.weight[::step]
            sample = _minimise(LabelledRows(rows.logits[::step], rows.labels[::step], weight), start, _SAMPLE_TOLERANCE)
            start = 0.0 if sample.at_bound else sample.log_inverse
        optimum = _minimise(rows, start, _TOLERANCE)
        self.temperature_ = optimum.temperature
        self.at_bound_ = optimum.at_bound
        self.classes_ = rows.logits.shape[1]

    def _transform(self, logits: Doubles, maxima: Doubles) -> Doubles:
        # Shifted before it is scaled, so that neither step overflows and the largest entry is exactly zero.
        with np.errstate(over="ignore"):
            logits -= maxima
            logits *= 1.0 / self.temperature_
        np.exp(logits, out=logits)
        logits /= row_sums(logits)
        return logits

    def _parameters(self) -> dict[str, Any]:
        return {"classes": self.classes_, "temperature": self.temperature_, "at_bound": self.at_bound_}

    @classmethod
    def _restore(cls, document: Document) -> Self:
        calibrator = cls()
        calibrator.temperature_ = document.number("temperature", LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE)
        calibrator.at_bound_ = document.flag("at_bound")
        calibrator.classes_ = document.count("classes", least=2)
        return calibrator


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
    """Of the total NLL by β = 1/T, at one β; `missed`: some label does not have its row's largest logit."""

    slope: float
    curvature: float
    missed: bool


def _minimise(rows: LabelledRows, start: float, tolerance: float) -> _Optimum:
    """Finds θ = log(1/T) by Newton's method inside a bracket of opposite slopes.

    Args:
        rows: The data.
        start: First θ.
        tolerance: How far from the optimum θ may be.

    Raises:
        CalibrationFitError: No convergence, which convexity rules out.
    """
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
            # Sums of the largest logits there are overflow, unless they weigh little; only ratios of weights matter.
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
            # Weights far apart make slopes exponential, up which Newton's method creeps.
            inside, following = False, (low + high) / 2
        elif not inside:
            end = high if following >= high else low
            following = end if end in untried else (low + high) / 2
        # Newton's steps s₁, s₂ are followed by about s₂² (s₂ / s₁²): what is left is foreseen, with a margin.
        move = abs(following - theta)
        left = 4 * move**2 * max(1.0, move / before**2) if inside and before else move
        if min(left, move) < tolerance:
            return _Optimum(following, at_bound=False)
        theta, before = following, move if inside else 0.0
    raise CalibrationFitError(
        "No convergence",
        where="temperature",
        found=f"still moving after {_MAX_STEPS} steps, 1/T between {math.exp(low):g} and {math.exp(high):g}",
        expected=f"log(1/T) to {tolerance:g}",
    )


def _differentiator(rows: LabelledRows) -> Callable[[float], _Derivatives]:
    """The derivatives of the rows' NLL as a function of β; few rows are prepared once, many anew for each β."""
    if rows.logits.shape[1] == 2:
        return lambda beta: _binary_derivatives(rows, beta)
    if rows.logits.size > _ENTRIES_KEPT:
        return lambda beta: _derivatives(rows, _below_maxima(rows), beta)
    kept = list(_below_maxima(rows))
    return lambda beta: _derivatives(rows, kept, beta)


def _below_maxima(rows: LabelledRows) -> Iterator[tuple[slice, Floats, Doubles]]:
    """Yields d = z − max z chunk by chunk, and d (n,) of the labels.

    d has the shape (K, n) where classes are few and (n, K) where they are many: sums over classes are fastest so.
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
    """One pass: with d = z − max z and moments of d under softmax(β d), slope = E[d] − d_label."""
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
    """Mean and variance (n,) of each row of ``below`` (n, K) under softmax(β · below)."""
    shares = np.multiply(below, below.dtype.type(beta))
    np.exp(shares, out=shares)
    total = np.add.reduce(shares, axis=1).astype(np.float64)
    first = np.vecdot(shares, below).astype(np.float64)
    shares *= below
    mean = first / total
    return mean, np.vecdot(shares, below).astype(np.float64) / total - mean * mean


def _column_moments(below: Floats, beta: float) -> tuple[Doubles, Doubles]:
    """As `_row_moments`, of the columns of ``below`` (K, n)."""
    shares = np.multiply(below, below.dtype.type(beta))
    np.exp(shares, out=shares)
    total = np.add.reduce(shares, axis=0).astype(np.float64)
    shares *= below
    mean = np.add.reduce(shares, axis=0).astype(np.float64) / total
    shares *= below
    return mean, np.add.reduce(shares, axis=0).astype(np.float64) / total - mean * mean


def _binary_derivatives(rows: LabelledRows, beta: float) -> _Derivatives:
    """As `_derivatives`, for two classes: with u the other logit minus the label's, NLL = log(1 + exp(β u))."""
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
    """Σ u σ(β u) and Σ u² σ(β u) (1 − σ(β u)) over one chunk of u."""
    share = np.multiply(deficit, deficit.dtype.type(-beta))
    np.exp(share, out=share)
    share += 1
    np.divide(deficit, share, out=share)
    second = (deficit - share) * share
    if weight is None:
        return float(np.add.reduce(share, dtype=np.float64)), float(np.add.reduce(second, dtype=np.float64))
    return float(share @ weight[part]), float(second @ weight[part])


def _floor(dtype: np.dtype[Any]) -> float:
    """Raising differences to this is exact: below it, shares underflow to zero at every T in range."""
    return -15_000.0 if dtype == np.float64 else -2_200.0


def _depends_on_temperature(logits: Floats) -> bool:
    """Whether some row has two different finite logits."""
    for part in row_chunks(*logits.shape):
        chunk = logits[part]
        maxima = np.maximum.reduce(chunk, axis=1, keepdims=True)
        if ((chunk < maxima) & (chunk > -np.inf)).any():
            return True
    return False
