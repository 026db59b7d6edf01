"""The objective of a softmax regression, its derivatives, and its minimum.

With few parameters Newton's method finds the minimum, the Hessian summed up in the same pass over row chunks as the
gradient; with many a trust region Newton method with conjugate gradients does, from Hessian-vector products, or, for a
diagonal map, a quasi-Newton method in coordinates that make the classes' own parts of the Hessian the identity; neither
stores a Hessian.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from scipy import optimize

from calibrators.arrays import Doubles
from calibrators.chunks import row_maxima, row_sums
from calibrators.errors import CalibrationFitError
from calibrators.feature_chunks import FeatureChunks
from calibrators.softmax_newton import Expansion, newton_minimum
from calibrators.validation import LabelledRows

FEW_PARAMETERS = 256
_GRADIENT_TOLERANCE = 3e-7
_MAX_STEPS = 500


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

    def minimum(self, start: Doubles) -> tuple[Doubles, Doubles]:
        """The A and b at the minimum, looked for from ``start``.

        Raises:
            CalibrationFitError: No convergence.
        """
        if self.target.size <= FEW_PARAMETERS:
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
        """A and b, views of θ."""
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
        """The objective and its gradient at θ, one pass over the rows."""
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
        """The Hessian at θ times a direction, one pass over the rows."""
        change, change_intercepts = self.split(direction)
        product = np.zeros_like(theta)
        weights, intercepts = self.split(product)
        for part, inputs, shares, _ in self._passes(theta):
            moved = apply_affine(change, inputs) + change_intercepts
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
            yield part, inputs, softmax_where(apply_affine(weights, inputs) + intercepts, possible), own

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


def apply_affine(weights: Doubles, features: Doubles) -> Doubles:
    """(n, K) products; one dot product an entry, so that a row's result does not depend on the rows beside it."""
    if weights.ndim == 1:
        return features * weights
    return np.asarray(np.vecdot(features[:, None, :], weights[None]))


def softmax_where(scores: Doubles, possible: npt.NDArray[np.bool_] | None) -> Doubles:
    """Overwrites scores (n, K) with their softmax, exactly zero where not ``possible`` (None: all are)."""
    # Weights fitted to one scale may overflow on logits of another; the clip keeps the order of what overflows.
    np.clip(scores, -1e300, 1e300, out=scores)
    if possible is not None:
        scores[~possible] = -np.inf
    scores -= row_maxima(scores)
    np.exp(scores, out=scores)
    scores /= row_sums(scores)
    return scores
