"""Multinomial logistic regression on K features of K classes: what vector, matrix and Dirichlet scaling share.

The scores of a row are ``A f + b``, with f its standardised features, and its probabilities their softmax. A is
diagonal or full. The mean NLL plus a quadratic penalty is strictly convex. With few parameters Newton's method finds
its minimum, the Hessian summed up in the same pass over row chunks as the gradient; with many a trust region Newton
method with conjugate gradients does, from Hessian-vector products, or, for a diagonal map, a quasi-Newton method in
coordinates that make the classes' own parts of the Hessian the identity; neither stores a Hessian.
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
from calibrators.chunks import check_label_logits, logit_chunks, row_maxima, row_sums
from calibrators.errors import CalibrationDataError, CalibrationFitError
from calibrators.softmax_newton import Expansion, newton_minimum
from calibrators.temperature import Temperature
from calibrators.validation import LabelledRows

Features: TypeAlias = Callable[[Doubles, Doubles], Doubles]

# Keeps the optimum finite where the data alone have none (a class that the labels lack, separable rows). Elsewhere it
# costs half of RIDGE² δ² / curvature in mean NLL, below 1e-7 for data that determine their parameters. With it, a
# gradient below the tolerance leaves at most tolerance² / (2 RIDGE) = 5e-8 of the objective.
RIDGE = 1e-6
_GRADIENT_TOLERANCE = 3e-7
_MAX_STEPS = 500
_FEW_PARAMETERS = 256
_ENTRIES_KEPT = 2_097_152
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
    if np.minimum.reduce(logits, axis=None, initial=0) > -np.inf:
        return logits
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
    inputs = _Inputs(rows, features)
    centre, scale = inputs.standardise()
    shape = (classes, classes) if full else (classes,)
    target = np.eye(classes) if full else np.ones(classes)
    strength = np.full(shape, RIDGE)
    if full:
        strength += 2 * off_diagonal / (classes * (classes - 1)) * (1 - np.eye(classes))
    objective = _Objective(
        rows,
        inputs,
        shape,
        np.concatenate([target.ravel(), np.zeros(classes)]),
        np.concatenate([strength.ravel(), np.full(classes, RIDGE + 2 * intercept / classes)]),
    )
    start = objective.target
    if not full and len(start) > _FEW_PARAMETERS:
        inverse = 1 / Temperature().fit(rows.logits, rows.labels, rows.weight).temperature_
        start = np.concatenate([np.full(classes, scale * inverse), centre * inverse])
    weights, intercepts = objective.minimum(start)
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
        _Inputs(rows, features),
        target.shape,
        np.concatenate([target.ravel(), np.zeros(classes)]),
        np.concatenate([strength.ravel(), np.full(classes, RIDGE + 2 * intercept)]),
    )
    return AffineMap(*objective.minimum(objective.target))


def check_penalty(value: float, name: str) -> float:
    """Refuses a penalty that is not a finite number of 0 or more; raises CalibrationDataError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise CalibrationDataError("Bad option", where=name, found=repr(value), expected="a finite number of 0 or more")
    return float(value)


class _Inputs:
    """The features of all rows, chunk by chunk; kept where they are few, and made anew for each pass elsewhere.

    Yields the rows, their features (n, K), column by column in memory with two classes, and which classes are possible
    (n, K), or None where all are.
    """

    def __init__(self, rows: LabelledRows, features: Features) -> None:
        self._rows = rows
        self._features = features
        self._place: tuple[Doubles, float] | None = None
        self._kept = list(self._read()) if rows.logits.size <= _ENTRIES_KEPT else None

    def __iter__(self) -> Iterator[tuple[slice, Doubles, npt.NDArray[np.bool_] | None]]:
        return self._read() if self._kept is None else iter(self._kept)

    def standardise(self) -> tuple[Doubles, float]:
        """Centres each column and divides all by one standard deviation, and returns the two; 1 if nothing varies."""
        classes = self._rows.logits.shape[1]
        # Of features divided by the largest, so that squares neither overflow nor vanish.
        largest = max(float(np.abs(inputs).max()) for _, inputs, _ in self)
        total, first, second = 0.0, np.zeros(classes), np.zeros(classes)
        for part, inputs, _ in self:
            relative = inputs / (largest or 1.0)
            weight = np.ones(len(relative)) if self._rows.weight is None else self._rows.weight[part]
            total += float(weight.sum())
            first += weight @ relative
            relative *= relative
            second += weight @ relative
        mean = first / total
        variance = float(np.mean(second / total - mean**2))
        centre, scale = mean * largest, (largest or 1.0) * (variance**0.5 if variance > 1e-24 else 1.0)
        if self._kept is None:
            self._place = (centre, scale)
        for _, inputs, _ in self._kept or ():
            inputs -= centre
            inputs /= scale
        return centre, scale

    def _read(self) -> Iterator[tuple[slice, Doubles, npt.NDArray[np.bool_] | None]]:
        labels = self._rows.labels
        for part, chunk, maxima in logit_chunks(self._rows.logits):
            check_label_logits(chunk[np.arange(len(chunk)), labels[part]], labels, part.start)
            possible = None if np.minimum.reduce(chunk, axis=None) > -np.inf else chunk > -np.inf
            inputs = self._features(chunk, maxima)
            if inputs.shape[1] == 2:
                inputs = np.asfortranarray(inputs)
            if self._place is not None:
                inputs -= self._place[0]
                inputs /= self._place[1]
            yield part, inputs, possible


class _Objective:
    """Mean NLL + ½ Σ strength · (θ − target)², θ the entries of A and then b."""

    def __init__(
        self, rows: LabelledRows, inputs: _Inputs, shape: tuple[int, ...], target: Doubles, strength: Doubles
    ) -> None:
        self.rows = rows
        self.inputs = inputs
        self.shape = shape
        self.target = target
        self.strength = strength
        self.total = float(len(rows.labels)) if rows.weight is None else float(rows.weight.sum())

    def minimum(self, start: Doubles) -> tuple[Doubles, Doubles]:
        """The A and b at the minimum, looked for from ``start``.

        Raises:
            CalibrationFitError: No convergence.
        """
        if self.target.size <= _FEW_PARAMETERS:
            binary = self.shape[0] == 2
            return self.split(newton_minimum(self._binary_derivatives if binary else self._derivatives, start))
        if len(self.shape) == 1:
            start = self._quasi_newton(start)
        found = optimize.minimize(
            self.value_and_gradient,
            start,
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

    def _quasi_newton(self, start: Doubles) -> Doubles:
        """Near the minimum of a diagonal map; how near, its caller checks.

        The Hessian's 2×2 blocks, one for each class, less what couples the classes, are inverted once: it is little
        that couples many classes, and a few quasi-Newton steps learn it.
        """
        classes = self.shape[0]
        blocks = np.zeros((classes, 2, 2))
        for part, inputs, shares, _ in self._passes(start):
            if self.rows.weight is not None:
                shares *= self.rows.weight[part][:, None]
            one = np.ones(len(inputs))
            blocks[:, 1, 1] += one @ shares
            shares *= inputs
            blocks[:, 0, 1] += one @ shares
            shares *= inputs
            blocks[:, 0, 0] += one @ shares
        blocks[:, 1, 0] = blocks[:, 0, 1]
        blocks /= self.total
        blocks[:, 0, 0] += self.strength[:classes]
        blocks[:, 1, 1] += self.strength[classes:]
        # θ = start + C y with C Cᵀ the inverse of the blocks.
        factor = np.swapaxes(np.linalg.inv(np.linalg.cholesky(blocks)), 1, 2)

        def moved(y: Doubles) -> Doubles:
            return np.asarray(start + (factor @ y.reshape(2, classes).T[:, :, None])[:, :, 0].T.ravel())

        slope = math.inf

        def value_and_gradient(y: Doubles) -> tuple[float, Doubles]:
            nonlocal slope
            value, gradient = self.value_and_gradient(moved(y))
            slope = float(np.linalg.norm(gradient))
            back = np.swapaxes(factor, 1, 2) @ gradient.reshape(2, classes).T[:, :, None]
            return value, back[:, :, 0].T.ravel()

        def stop_when_done(xk: Doubles) -> None:  # noqa: ARG001
            if slope <= _GRADIENT_TOLERANCE:
                raise StopIteration

        found = optimize.minimize(
            value_and_gradient,
            np.zeros_like(start),
            jac=True,
            method="L-BFGS-B",
            callback=stop_when_done,
            options={"maxcor": 20, "ftol": 0.0, "gtol": 0.0, "maxiter": _MAX_STEPS, "maxfun": 2 * _MAX_STEPS},
        )
        return moved(found.x)

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
        for part, inputs, possible in self.inputs:
            own = (np.arange(len(inputs)), self.rows.labels[part])
            yield part, inputs, _softmax(_apply(weights, inputs) + intercepts, possible), own

    def _penalised(self, value: float, gradient: Doubles, hessian: Doubles, theta: Doubles) -> Expansion:
        away = theta - self.target
        return (
            value / self.total + 0.5 * float(away @ (self.strength * away)),
            gradient / self.total + self.strength * away,
            hessian / self.total + np.diag(self.strength),
        )

    def _derivatives(self, theta: Doubles) -> Expansion:
        """Value, gradient and Hessian in one pass.

        With G the products p_i · (x, 1) of a row, the Hessian sums p_i (x, 1)(x, 1)ᵀ, class by class, less GGᵀ.
        """
        classes = self.shape[0]
        full = len(self.shape) == 2
        weights, intercepts = self.split(theta)
        value, gradient = 0.0, np.zeros_like(theta)
        hessian = np.zeros((len(theta), len(theta)))
        slopes, shifts = self.split(gradient)
        squares = np.zeros((classes, classes, classes)) if full else np.zeros(classes)
        crosses, masses = np.zeros(self.shape), np.zeros(classes)
        for part, inputs, possible in self.inputs:
            own = (np.arange(len(inputs)), self.rows.labels[part])
            weight = np.ones(len(inputs)) if self.rows.weight is None else self.rows.weight[part]
            scores = (inputs @ weights.T if full else inputs * weights) + intercepts
            if possible is not None:
                scores[~possible] = -np.inf
            scores -= row_maxima(scores)
            label_scores = scores[own]
            shares = np.exp(scores, out=scores)
            total = row_sums(shares)
            shares /= total
            value += float(weight @ (np.log(total[:, 0]) - label_scores))
            weighted = shares * weight[:, None]
            root = np.sqrt(weight)[:, None]
            masses += weight @ shares
            if full:
                products = (shares[:, :, None] * inputs[:, None, :]).reshape(len(inputs), -1)
                squares += (products.T @ (inputs * weight[:, None])).reshape(classes, classes, classes)
                crosses += weighted.T @ inputs
            else:
                products = shares * inputs
                squares += np.einsum("ij,ij->j", weighted * inputs, inputs)
                crosses += weight @ products
            joined = np.concatenate([products, shares], axis=1)
            joined *= root
            hessian -= joined.T @ joined
            weighted[own] -= weight
            shifts += weighted.sum(axis=0)
            slopes += weighted.T @ inputs if full else np.einsum("ij,ij->j", weighted, inputs)
        for k in range(classes):
            at = np.arange(k * classes, (k + 1) * classes) if full else np.array([k])
            last = len(theta) - classes + k
            hessian[np.ix_(at, at)] += squares[k]
            hessian[at, last] += crosses[k]
            hessian[last, at] += crosses[k]
            hessian[last, last] += masses[k]
        return self._penalised(value, gradient, hessian, theta)

    def _binary_derivatives(self, theta: Doubles) -> Expansion:
        """As `_derivatives`, for two classes: logistic regression in u, the difference of the two scores."""
        # u = φ · (x, 1), and φ is linear in θ.
        mix = np.array([[-1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, -1, 1]])
        if len(self.shape) == 2:
            mix = np.array([[-1.0, 0, 1, 0, 0, 0], [0, -1, 0, 1, 0, 0], [0, 0, 0, 0, -1, 1]])
        phi = mix @ theta
        value, gradient, hessian = 0.0, np.zeros(3), np.zeros((3, 3))
        for part, inputs, possible in self.inputs:
            happened = self.rows.labels[part].astype(np.float64)
            first, second = inputs[:, 0], inputs[:, 1]
            scores = phi[0] * first
            scores += phi[1] * second
            scores += phi[2]
            tail = np.abs(scores)
            np.negative(tail, out=tail)
            np.exp(tail, out=tail)
            losses = np.log1p(tail)
            losses += np.maximum(scores, 0)
            losses -= happened * scores
            share = 1 / (1 + tail)
            spread = tail * share
            spread *= share
            np.copyto(share, 1 - share, where=scores < 0)
            share -= happened
            if possible is not None:
                # Where only the label's class is possible, nothing is uncertain.
                certain = ~possible.all(axis=1)
                for values in (losses, share, spread):
                    values[certain] = 0
            if self.rows.weight is not None:
                for values in (losses, share, spread):
                    values *= self.rows.weight[part]
            value += float(losses.sum())
            gradient += [share @ first, share @ second, share.sum()]
            one, other = spread * first, spread * second
            hessian += [
                [one @ first, one @ second, one.sum()],
                [one @ second, other @ second, other.sum()],
                [one.sum(), other.sum(), spread.sum()],
            ]
        return self._penalised(value, mix.T @ gradient, mix.T @ hessian @ mix, theta)

    def _collect(self, residuals: Doubles, inputs: Doubles, part: slice, weights: Doubles, intercepts: Doubles) -> None:
        """Adds Σ residual · input over a chunk to the two parts of a gradient."""
        if self.rows.weight is not None:
            residuals *= self.rows.weight[part][:, None]
        one = np.ones(len(residuals))
        intercepts += one @ residuals
        if weights.ndim == 2:
            weights += residuals.T @ inputs
        else:
            residuals *= inputs
            weights += one @ residuals


def _apply(weights: Doubles, features: Doubles) -> Doubles:
    """(n, K) products; one dot product an entry, so that a row's result does not depend on the rows beside it."""
    if weights.ndim == 1:
        return features * weights
    return np.asarray(np.vecdot(features[:, None, :], weights[None]))


def _softmax(scores: Doubles, possible: npt.NDArray[np.bool_] | None) -> Doubles:
    # Weights fitted to one scale may overflow on logits of another; the clip keeps the order of what overflows.
    np.clip(scores, -1e300, 1e300, out=scores)
    if possible is not None:
        scores[~possible] = -np.inf
    scores -= row_maxima(scores)
    np.exp(scores, out=scores)
    scores /= row_sums(scores)
    return scores
