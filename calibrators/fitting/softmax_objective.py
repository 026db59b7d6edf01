"""The objective of a softmax regression, its derivatives, and its minimum.

With few parameters Newton's method finds the minimum, and sums up the Hessian in the same pass as the gradient. With
many, a trust region Newton method with conjugate gradients does, from Hessian-vector products.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import scipy

from calibrators.arrays import Doubles
from calibrators.chunks import CHUNK_ENTRIES, row_maxima, row_sums
from calibrators.errors import no_convergence
from calibrators.fitting.feature_chunks import FeatureChunks
from calibrators.fitting.quasi_newton import Expansion
from calibrators.fitting.softmax_newton import newton_minimum
from calibrators.validation import LabelledRows

FEW_PARAMETERS = 256
GRADIENT_TOLERANCE = 3e-7
_MAX_STEPS = 500
# Sums of exponentials of scores up to this neither overflow nor vanish, so rows need no shift by their maximum.
_MODERATE = 500.0


class SoftmaxObjective:
    """Mean NLL + ½ Σ strength · (θ − target)², θ the entries of A and then b."""

    def __init__(
        self, rows: LabelledRows, inputs: FeatureChunks, shape: tuple[int, ...], target: Doubles, strength: Doubles
    ) -> None:
        self.rows = rows
        self.inputs = inputs
        self.shape = shape
        self.target = target
        self.strength = strength
        self.total = float(len(rows.labels)) if rows.weight is None else float(rows.weight.sum())
        self._own = inputs.label_sums(full=len(shape) == 2)

    def minimum(self, start: Doubles, tolerance: float = GRADIENT_TOLERANCE) -> tuple[Doubles, Doubles]:
        """Return A and b at the minimum, searched from ``start``.

        Args:
            start: θ.
            tolerance: Largest norm of the gradient at the end; with few parameters the end is exact.

        Raises:
            CalibrationFitError: No convergence.
        """
        if self.target.size <= FEW_PARAMETERS:
            binary = self.shape[0] == 2
            if binary:
                return self.split(newton_minimum(self._binary_derivatives, start))
            return self.split(newton_minimum(self._derivatives, start, self.value_and_gradient))
        found = scipy.optimize.minimize(
            self.value_and_gradient,
            start,
            jac=True,
            hessp=self.hessian_product,
            method="trust-ncg",
            options={"gtol": tolerance, "maxiter": _MAX_STEPS, "max_trust_radius": 1e6},
        )
        slope = float(np.linalg.norm(found.jac))
        if not slope <= 10 * tolerance:
            raise no_convergence("softmax regression", f"a gradient of {slope:.3g}", f"at most {tolerance:g}")
        return self.split(found.x)

    def split(self, theta: Doubles) -> tuple[Doubles, Doubles]:
        """Return A and b, views of θ (…, D)."""
        classes = self.shape[0]
        return theta[..., :-classes].reshape(*theta.shape[:-1], *self.shape), theta[..., -classes:]

    def value_and_gradient(self, theta: Doubles) -> tuple[float, Doubles]:
        """Return the objective and its gradient at θ, in one pass over the rows."""
        value, gradient = 0.0, np.zeros_like(theta)
        for part, inputs, shares, logs in self._passes(theta):
            value += self._sum(logs, part)
            self._collect(shares, inputs, part, gradient)
        return self._penalised(value, gradient, theta)

    def hessian_product(self, theta: Doubles, direction: Doubles) -> Doubles:
        """Return the Hessian at θ times a direction, in one pass over the rows."""
        change, change_intercepts = self.split(direction)
        product = np.zeros_like(theta)
        for part, inputs, shares, _ in self._passes(theta):
            moved = (inputs @ change.T if change.ndim == 2 else inputs * change) + change_intercepts
            moved -= np.vecdot(shares, moved)[:, None]
            moved *= shares
            self._collect(moved, inputs, part, product)
        return product / self.total + self.strength * direction

    def _passes(self, theta: Doubles) -> Iterator[tuple[slice, Doubles, Doubles, Doubles]]:
        """Yield row slices, features (n, K), shares (n, K), free to overwrite, and log Σ exp of the scores (n,)."""
        weights, intercepts = self.split(theta)
        one = np.ones(len(intercepts))
        rows = np.abs(weights).sum(axis=1) if weights.ndim == 2 else np.abs(weights)
        moderate = self.inputs.extent * rows.max() + np.abs(intercepts).max() < _MODERATE
        for part, inputs, possible in self.inputs:
            scores = inputs @ weights.T if weights.ndim == 2 else inputs * weights
            scores += intercepts
            if possible is not None:
                scores[~possible] = -np.inf
            if moderate:
                shift = np.zeros(1)
            else:
                shift = row_maxima(scores)
                scores -= shift
            shares = np.exp(scores, out=scores)
            total = shares @ one  # several times faster than adding up short rows one by one
            shares /= total[:, None]
            yield part, inputs, shares, np.log(total) + shift.ravel()

    def _sum(self, values: Doubles, part: slice) -> float:
        return float(values.sum() if self.rows.weight is None else values @ self.rows.weight[part])

    def _penalised(self, logs: float, gradient: Doubles, theta: Doubles) -> tuple[float, Doubles]:
        """Return the objective and its gradient, from Σ log Σ exp of the scores and its gradient."""
        away = theta - self.target
        value = (logs - float(theta @ self._own)) / self.total + 0.5 * float(away @ (self.strength * away))
        return value, (gradient - self._own) / self.total + self.strength * away

    def _derivatives(self, theta: Doubles) -> Expansion:
        """Return value, gradient and Hessian in one pass.

        With G the products p_i · (x, 1) of a row, the Hessian sums p_i (x, 1)(x, 1)ᵀ, class by class, minus GGᵀ.
        """
        classes = self.shape[0]
        full = len(self.shape) == 2
        value, gradient = 0.0, np.zeros_like(theta)
        hessian = np.zeros((len(theta), len(theta)))
        squares = np.zeros((classes, classes, classes)) if full else np.zeros(classes)
        first_moments = np.zeros_like(theta)
        step = max(1, CHUNK_ENTRIES // len(theta))
        joined = np.empty((step, len(theta)))
        for part, inputs, shares, logs in self._passes(theta):
            weight = np.ones(len(inputs)) if self.rows.weight is None else self.rows.weight[part]
            value += self._sum(logs, part)
            # G is much wider than the features: a few rows of it at a time stay in the cache.
            for first in range(0, len(inputs), step):
                x, p, w = inputs[first : first + step], shares[first : first + step], weight[first : first + step]
                block = joined[: len(x)]
                products, ones = self.split(block)
                np.multiply(p[:, :, None], x[:, None, :], out=products) if full else np.multiply(p, x, out=products)
                ones[:] = p
                if full:
                    weighted = x if self.rows.weight is None else x * w[:, None]
                    squares += (block[:, :-classes].T @ weighted).reshape(squares.shape)
                else:
                    squares += w @ (products * x)
                first_moments += w @ block
                if self.rows.weight is not None:
                    block *= np.sqrt(w)[:, None]
                hessian -= block.T @ block
            self._collect(shares, inputs, part, gradient)
        crosses, masses = self.split(first_moments)
        for k in range(classes):
            at = np.arange(k * classes, (k + 1) * classes) if full else np.array([k])
            last = len(theta) - classes + k
            hessian[np.ix_(at, at)] += squares[k]
            hessian[at, last] += crosses[k]
            hessian[last, at] += crosses[k]
            hessian[last, last] += masses[k]
        return *self._penalised(value, gradient, theta), hessian / self.total + np.diag(self.strength)

    def _binary_derivatives(self, theta: Doubles) -> Expansion:
        """Return the same for two classes: logistic regression in u, the difference of the two scores."""
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
                # If only the label's class is possible, nothing is uncertain.
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
        gradient, hessian = mix.T @ gradient + self._own, mix.T @ hessian @ mix
        value, gradient = self._penalised(value + float(theta @ self._own), gradient, theta)
        return value, gradient, hessian / self.total + np.diag(self.strength)

    def _collect(self, residuals: Doubles, inputs: Doubles, part: slice, gradient: Doubles) -> None:
        """Add Σ residual · (input, 1) over a chunk to a gradient; overwrites the residuals."""
        slopes, shifts = self.split(gradient)
        if self.rows.weight is not None:
            residuals *= self.rows.weight[part][:, None]
        one = np.ones(len(residuals))
        shifts += one @ residuals
        if slopes.ndim == 2:
            slopes += residuals.T @ inputs
        else:
            residuals *= inputs
            slopes += one @ residuals


def apply_affine(weights: Doubles, features: Doubles) -> Doubles:
    """Return products (n, K), one dot product per entry, so that a row's result depends on that row alone."""
    if weights.ndim == 1:
        return features * weights
    return np.asarray(np.vecdot(features[:, None, :], weights[None]))


def softmax_where(scores: Doubles, possible: npt.NDArray[np.bool_] | None) -> Doubles:
    """Overwrite scores (n, K) with their softmax, exactly zero if not ``possible`` (None: all are possible)."""
    # Weights fitted to one scale may overflow on logits of another; the clip keeps their order.
    np.clip(scores, -1e300, 1e300, out=scores)
    if possible is not None:
        scores[~possible] = -np.inf
    scores -= row_maxima(scores)
    np.exp(scores, out=scores)
    scores /= row_sums(scores)
    return scores
