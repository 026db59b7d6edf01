"""Multinomial logistic regression on K features of K classes: what vector, matrix and Dirichlet scaling share.

The scores of a row are ``A f + b``, with f its standardised features, and its probabilities their softmax. A is
diagonal or full. The mean NLL plus a quadratic penalty is strictly convex; a trust region Newton method with conjugate
gradients finds its minimum from Hessian-vector products, each one pass over row chunks: no Hessian is ever stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import optimize

from calibrators.arrays import Doubles
from calibrators.chunks import check_label_logits, logit_chunks
from calibrators.errors import CalibrationDataError, CalibrationFitError
from calibrators.validation import LabelledRows

Features: TypeAlias = Callable[[Doubles, Doubles], Doubles]

# Keeps the optimum finite where the data alone have none (a class that the labels lack, separable rows). Elsewhere it
# costs half of RIDGE² δ² / curvature in mean NLL, below 1e-7 for data that determine their parameters. With it, a
# gradient below the tolerance leaves at most tolerance² / (2 RIDGE) = 5e-8 of the objective.
RIDGE = 1e-6
_GRADIENT_TOLERANCE = 3e-7
_MAX_STEPS = 500
# −inf cannot be mixed with other features; its class keeps a probability of zero, and other classes see a log-odds of
# −87.3, the logarithm of the smallest normal float32.
_IMPOSSIBLE = -87.3


@dataclass(frozen=True, slots=True)
class AffineMap:
    """Scores = features · weightsᵀ + intercepts.

    Attributes:
        weights: (K,) for a diagonal map, or (K, K).
        intercepts: (K,).
    """

    weights: Doubles
    intercepts: Doubles

    def probabilities(self, features: Doubles, possible: npt.NDArray[np.bool_]) -> Doubles:
        """Softmax (n, K) of the scores; exactly zero where not ``possible``.

        Args:
            features: (n, K) float64.
            possible: (n, K); at least one in each row.
        """
        return _softmax(_apply(self.weights, features) + self.intercepts, possible)


def raw_logits(logits: Doubles, maxima: Doubles) -> Doubles:
    """The logits as features; −inf becomes the row's largest logit less 87.3."""
    return np.where(np.isneginf(logits), maxima + _IMPOSSIBLE, logits)


def log_probabilities(logits: Doubles, maxima: Doubles) -> Doubles:
    """The logarithms of the softmax as features; −inf becomes −87.3."""
    with np.errstate(over="ignore"):
        shifted = logits - maxima
    total = np.log(np.add.reduce(np.exp(shifted), axis=1, keepdims=True))
    return np.where(np.isneginf(logits), _IMPOSSIBLE, shifted - total)


def fit_affine(
    rows: LabelledRows, features: Features, *, full: bool, off_diagonal: float = 0.0, intercept: float = 0.0
) -> AffineMap:
    """Minimises mean NLL + penalties.

    Features are standardised first (each column centred, all divided by one standard deviation), which leaves the
    family of maps as it is and makes the penalties independent of the logits' scale.

    Args:
        rows: The data.
        features: Makes (n, K) features from a chunk of logits and their (n, 1) row maxima.
        full: A full matrix, or a diagonal one.
        off_diagonal: Penalty on the mean square of the off-diagonal entries.
        intercept: Penalty on the mean square of the intercepts.

    Raises:
        CalibrationDataError: Logits that cannot be used.
        CalibrationFitError: No convergence.
    """
    classes = rows.logits.shape[1]
    centre, scale = _location_and_scale(rows, features)
    shape = (classes, classes) if full else (classes,)
    target = np.eye(classes) if full else np.ones(classes)
    strength = np.full(shape, RIDGE)
    if full:
        strength += 2 * off_diagonal / (classes * (classes - 1)) * (1 - np.eye(classes))
    objective = _Objective(
        rows,
        lambda chunk, maxima: (features(chunk, maxima) - centre) / scale,
        shape,
        np.concatenate([target.ravel(), np.zeros(classes)]),
        np.concatenate([strength.ravel(), np.full(classes, RIDGE + 2 * intercept / classes)]),
    )
    weights, intercepts = objective.minimum()
    weights = weights / scale
    return AffineMap(weights, intercepts - _apply(weights, centre[None])[0])


def fit_shrunk(
    rows: LabelledRows, features: Features, *, full: bool, diagonal: float, off_diagonal: float, intercept: float
) -> AffineMap:
    """Minimises mean NLL + diagonal · Σ (A_ii − 1)² + off_diagonal · Σ A_ij² (i ≠ j) + intercept · Σ b_i².

    Features are taken as they are: with all penalties large, the map is the identity.

    Args:
        rows: The data.
        features: Makes (n, K) features from a chunk of logits and their (n, 1) row maxima.
        full: A full matrix, or a diagonal one, for which ``off_diagonal`` means nothing.
        diagonal: Penalty on how far the diagonal is from one.
        off_diagonal: Penalty on the off-diagonal entries.
        intercept: Penalty on the intercepts.

    Raises:
        CalibrationDataError: Logits that cannot be used.
        CalibrationFitError: No convergence.
    """
    classes = rows.logits.shape[1]
    target = np.eye(classes) if full else np.ones(classes)
    strength = np.where(target == 1, 2 * diagonal, 2 * off_diagonal) + RIDGE
    objective = _Objective(
        rows,
        features,
        target.shape,
        np.concatenate([target.ravel(), np.zeros(classes)]),
        np.concatenate([strength.ravel(), np.full(classes, RIDGE + 2 * intercept)]),
    )
    return AffineMap(*objective.minimum())


def check_penalty(value: float, name: str) -> float:
    """Refuses a penalty that is not a finite number of 0 or more; raises CalibrationDataError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise CalibrationDataError("Bad option", where=name, found=repr(value), expected="a finite number of 0 or more")
    return float(value)


class _Objective:
    """Mean NLL + ½ Σ strength · (θ − target)², θ the entries of A and then b."""

    def __init__(
        self, rows: LabelledRows, features: Features, shape: tuple[int, ...], target: Doubles, strength: Doubles
    ) -> None:
        self.rows = rows
        self.features = features
        self.shape = shape
        self.target = target
        self.strength = strength
        self.total = float(len(rows.labels)) if rows.weight is None else float(rows.weight.sum())

    def minimum(self) -> tuple[Doubles, Doubles]:
        """The A and b at the minimum.

        Raises:
            CalibrationFitError: No convergence.
        """
        found = optimize.minimize(
            self.value_and_gradient,
            self.target,
            jac=True,
            hessp=self.hessian_product,
            method="trust-ncg",
            options={"gtol": _GRADIENT_TOLERANCE, "maxiter": _MAX_STEPS, "max_trust_radius": 1e6},
        )
        slope = float(np.linalg.norm(found.jac))
        if not slope <= 10 * _GRADIENT_TOLERANCE:
            raise CalibrationFitError(
                "No convergence",
                where="softmax regression",
                found=f"a gradient of {slope:.3g} after {found.nit} steps",
                expected=f"one of at most {_GRADIENT_TOLERANCE:g}",
            )
        return self.split(found.x)

    def split(self, theta: Doubles) -> tuple[Doubles, Doubles]:
        classes = self.shape[0]
        return theta[:-classes].reshape(self.shape), theta[-classes:]

    def value_and_gradient(self, theta: Doubles) -> tuple[float, Doubles]:
        value, slope = 0.0, np.zeros_like(theta)
        weights, intercepts = self.split(slope)
        for part, inputs, shares, own in self._passes(theta):
            weight = 1.0 if self.rows.weight is None else self.rows.weight[part]
            with np.errstate(divide="ignore"):
                value -= float(np.sum(weight * np.log(shares[own])))
            shares[own] -= 1
            self._collect(shares, inputs, part, weights, intercepts)
        away = theta - self.target
        return value / self.total + 0.5 * float(
            away @ (self.strength * away)
        ), slope / self.total + self.strength * away

    def hessian_product(self, theta: Doubles, direction: Doubles) -> Doubles:
        change, change_intercepts = self.split(direction)
        product = np.zeros_like(theta)
        weights, intercepts = self.split(product)
        for part, inputs, shares, _ in self._passes(theta):
            moved = _apply(change, inputs) + change_intercepts
            moved -= np.vecdot(shares, moved)[:, None]
            moved *= shares
            self._collect(moved, inputs, part, weights, intercepts)
        return product / self.total + self.strength * direction

    def _passes(
        self, theta: Doubles
    ) -> Iterator[tuple[slice, Doubles, Doubles, tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]]]:
        weights, intercepts = self.split(theta)
        for part, chunk, maxima in logit_chunks(self.rows.logits):
            own = (np.arange(len(chunk)), self.rows.labels[part])
            check_label_logits(chunk[own], self.rows.labels, part.start)
            inputs = self.features(chunk, maxima)
            yield part, inputs, _softmax(_apply(weights, inputs) + intercepts, chunk > -np.inf), own

    def _collect(self, residuals: Doubles, inputs: Doubles, part: slice, weights: Doubles, intercepts: Doubles) -> None:
        """Adds Σ residual · input over a chunk to the two parts of a gradient."""
        if self.rows.weight is not None:
            residuals *= self.rows.weight[part][:, None]
        weights += residuals.T @ inputs if weights.ndim == 2 else np.einsum("ij,ij->j", residuals, inputs)
        intercepts += residuals.sum(axis=0)


def _apply(weights: Doubles, features: Doubles) -> Doubles:
    """(n, K) products; one dot product an entry, so that a row's result does not depend on the rows beside it."""
    if weights.ndim == 1:
        return features * weights
    return np.asarray(np.vecdot(features[:, None, :], weights[None]))


def _softmax(scores: Doubles, possible: npt.NDArray[np.bool_]) -> Doubles:
    # Weights fitted to one scale may overflow on logits of another; the clip keeps the order of what overflows.
    scores = np.where(possible, np.clip(scores, -1e300, 1e300), -np.inf)
    scores -= np.maximum.reduce(scores, axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= np.add.reduce(scores, axis=1, keepdims=True)
    return scores


def _location_and_scale(rows: LabelledRows, features: Features) -> tuple[Doubles, float]:
    """Column means (K,) and one standard deviation, 1 where nothing varies."""
    classes = rows.logits.shape[1]
    total = float(len(rows.labels)) if rows.weight is None else float(rows.weight.sum())
    # Of features divided by the largest, so that squares neither overflow nor vanish.
    largest = max(
        (float(np.abs(features(chunk, maxima)).max()) for _, chunk, maxima in logit_chunks(rows.logits)), default=0.0
    )
    if largest == 0:
        return np.zeros(classes), 1.0
    first, second = np.zeros(classes), np.zeros(classes)
    for part, chunk, maxima in logit_chunks(rows.logits):
        relative = features(chunk, maxima) / largest
        weight = np.ones(len(relative)) if rows.weight is None else rows.weight[part]
        first += weight @ relative
        second += weight @ relative**2
    mean = first / total
    variance = float(np.mean(second / total - mean**2))
    return mean * largest, largest * (variance**0.5 if variance > 1e-24 else 1.0)
