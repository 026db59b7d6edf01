"""Binary logistic regressions on one or two features and a constant, many at once, by Newton's method.

A regression minimises mean log(1 + exp u) − t u over θ, u = θ · φ, for targets t in [0, 1], plus a ridge. One pass over
the rows sums up value, gradient and Hessian. The targets' part of the gradient is the same at every θ,
R = Σ (t − ½) φ, and summed up once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles
from calibrators.errors import CalibrationFitError, no_convergence

Indices: TypeAlias = npt.NDArray[np.intp]

_MAX_STEPS = 300
# Half of a squared Newton decrement is the remaining gain. Below the first the search ends; below the second a step
# is trusted to gain it, if the step before converged quadratically.
_DONE = 2e-14
_BELIEVED = 1e-14
# Accepted remaining gain if rounding stops all progress: columns far from the order of one lose that many digits.
_LOST = 2e-7
_ROUNDING = 1e-14
_SHORTEST = 1e-10
_LOG_2 = math.log(2)
_FIELDS = ("theta", "value", "size", "gradient", "hessian")


class Scratch:
    """Reusable arrays for chunks of one size: allocating new ones would cost as much as the sums themselves."""

    def __init__(self) -> None:
        self._held = np.empty((0, 0, 0))

    def arrays(self, count: int, shape: tuple[int, ...]) -> Doubles:
        """Return ``count`` uninitialised arrays of a shape (C, n), those of the last call if the shape is the same."""
        if self._held.shape != (count, *shape):
            self._held = np.empty((count, *shape))
        return self._held


class Expansions:
    """Value, gradient and Hessian of C objectives with D parameters each, summed up chunk by chunk.

    Attributes:
        value: (C,).
        size: (C,) magnitude of the terms of the value, which bounds its rounding.
        gradient: (C, D).
        hessian: (C, D, D).
    """

    def __init__(self, theta: Doubles) -> None:
        curves, size = theta.shape
        self.theta = theta
        self.value, self.size = np.zeros(curves), np.zeros(curves)
        self.gradient, self.hessian = np.zeros((curves, size)), np.zeros((curves, size, size))
        self._sums = np.zeros((2 + size + size * (size + 1) // 2, curves))

    def add(self, features: Sequence[Doubles], mass: Doubles | None, scratch: Scratch) -> None:
        """Add one chunk, without the contribution of its targets.

        Args:
            features: D − 1 arrays (C, n); the last feature is constant.
            mass: Weights (n,) or (C, n), or None for ones.
            scratch: Work space.
        """
        size = len(features) + 1
        scores, spread, product = scratch.arrays(3, features[0].shape)
        half = 0.5 * self.theta
        np.multiply(features[0], half[:, :1], out=scores)
        for j in range(1, size - 1):
            scores += np.multiply(features[j], half[:, j : j + 1], out=product)
        scores += half[:, -1:]
        # With v = u / 2 and T = tanh v, σ(u) − ½ = T / 2, its slope is (1 − T²) / 4, and nothing overflows in
        # log(1 + exp u) = v + |v| + log 2 − log(1 + |T|).
        np.abs(scores, out=spread)
        apart = np.add.reduce(spread, axis=1) if mass is None else np.add.reduce(spread * mass, axis=1)
        residual = np.tanh(scores, out=scores)
        np.abs(residual, out=spread)
        np.add(spread, 1, out=product)
        if mass is None:
            log_sum = _sum_logs(product) - product.shape[1] * _LOG_2
        else:
            np.log(product, out=product)
            product -= _LOG_2
            product *= mass
            log_sum = np.add.reduce(product, axis=1)
        spread *= spread
        np.subtract(1, spread, out=spread)
        if mass is not None:
            residual *= mass
            spread *= mass
        sums = [
            apart,
            log_sum,
            *(np.vecdot(residual, feature) for feature in features),
            np.add.reduce(residual, axis=1),
        ]
        for j in range(size - 1):
            np.multiply(spread, features[j], out=product)
            sums += [np.vecdot(product, feature) for feature in features[j:]]
            sums.append(np.add.reduce(product, axis=1))
        sums.append(np.add.reduce(spread, axis=1))
        self._sums += sums

    def of(self, which: npt.NDArray[np.bool_]) -> Expansions:
        """Return the expansions of some objectives."""
        part = Expansions(self.theta[which])
        for field in _FIELDS:
            setattr(part, field, getattr(self, field)[which])
        return part

    def put(self, which: npt.NDArray[np.bool_], other: Expansions) -> None:
        """Replace the expansions of some objectives."""
        for field in _FIELDS:
            getattr(self, field)[which] = getattr(other, field)

    def close(self, total: Doubles, targets: Doubles, ridge: float | Doubles, centre: Doubles) -> Expansions:
        """Turn sums over rows into means, and add targets and ridge.

        Args:
            total: (C,) sums of the weights, above 0.
            targets: (C, D) the sums R.
            ridge: (C, D, D) matrices R, or a multiple of the identity; adds ½ (θ − centre)ᵀ R (θ − centre).
            centre: (C, D).
        """
        size = self.theta.shape[1]
        apart, logs = self._sums[:2]
        pull = np.einsum("cd,cd->c", self.theta, targets)
        self.value = (apart - logs - pull) / total
        self.size = (apart + np.abs(pull)) / total
        self.gradient = (0.5 * self._sums[2 : 2 + size].T - targets) / total[:, None]
        rows, columns = _upper_triangle(size)
        self.hessian[:, rows, columns] = self.hessian[:, columns, rows] = (
            0.25 * self._sums[2 + size :].T / total[:, None]
        )
        away = self.theta - centre
        ridge = np.broadcast_to(np.eye(size) * ridge, self.hessian.shape) if isinstance(ridge, float) else ridge
        pull = np.vecdot(ridge, away[:, None, :])
        self.value += 0.5 * np.einsum("cd,cd->c", pull, away)
        self.gradient += pull
        self.hessian += ridge
        return self


Expand: TypeAlias = Callable[[Doubles, Indices], Expansions]


def minimum(expand: Expand, start: Doubles, bounded: int = 0, done: float = _DONE) -> Doubles:
    """Minimise C convex objectives at once by damped Newton steps, all in the same passes over the rows.

    Args:
        expand: Expands the objectives with the given numbers (A,) at their θ (A, D).
        start: (C, D) first θ, within the bounds.
        bounded: Number of leading parameters that must be 0 or more: 0 or 2. Steps then lead to the exact minimum of
            the quadratic model under these bounds.
        done: Twice the remaining gain at which a search may end.

    Returns:
        θ (C, D).

    Raises:
        CalibrationFitError: No convergence.
    """
    result = start.astype(np.float64)
    left = np.arange(len(result))
    at = expand(result, left)
    direction, decrement = _steps(at, bounded)
    length, before = np.ones(len(left)), np.full(len(left), np.inf)
    stuck = np.zeros(len(left), np.bool_)
    for _ in range(_MAX_STEPS):
        # Quadratic convergence multiplies the exponent: decrements d₁, d₂ are followed by about d₂ (d₂ / d₁)².
        with np.errstate(invalid="ignore"):
            falls = (length == 1) & (decrement < 1e-3 * before) & (before < 0.1)
            ended = (decrement <= done) | (falls & (decrement * (decrement / before) ** 2 < _BELIEVED))
        # Still take a full step, unless no step gains.
        result[left] = _kept(at.theta + np.where((ended & ~stuck)[:, None], direction, 0.0), bounded)
        ended |= stuck
        if ended.any():
            going = ~ended
            left, length, before = left[going], length[going], before[going]
            direction, decrement, at = direction[going], decrement[going], at.of(going)
        if len(left) == 0:
            return result
        length, stuck = np.ones(len(left)), np.zeros(len(left), np.bool_)
        following = expand(_kept(at.theta + direction, bounded), left)
        while (short := ~_gains(at, following, length, decrement)).any():
            length[short] /= 2
            stuck = length < _SHORTEST
            if stuck.any():
                worst = float(decrement[stuck].max())
                # Also true for NaN, which never gains and would be tried forever.
                if not worst <= _LOST:
                    raise _no_convergence(worst)
                following.put(stuck, at.of(stuck))
                short &= ~stuck
            if short.any():
                tried = expand(_kept((at.theta + length[:, None] * direction)[short], bounded), left[short])
                following.put(short, tried)
        before, at = decrement, following
        direction, decrement = _steps(at, bounded)
    worst = float(decrement.max())
    if not worst <= _LOST:
        raise _no_convergence(worst)
    result[left] = at.theta
    return result


def fit_logistic(features: Doubles, targets: Doubles, weight: Doubles | None, *, start: Doubles) -> Doubles:
    """Fit one regression to rows in memory and return θ (D,).

    Args:
        features: (N, D), 2 ≤ D ≤ 3, of the order of one; the first column is of ones.
        targets: (N,) in [0, 1], with a finite optimum.
        weight: (N,) or None.
        start: (D,) first θ.

    Raises:
        CalibrationFitError: No convergence.
    """
    # `Expansions` has the constant last.
    scratch = Scratch()
    columns = [np.ascontiguousarray(features[None, :, j]) for j in range(1, features.shape[1])]
    mass = np.ones(len(targets)) if weight is None else weight / weight.max()
    total = np.array([mass.sum()])
    sums = np.roll((mass * (targets - 0.5)) @ features, -1)[None]

    def expand(theta: Doubles, curves: Indices) -> Expansions:  # noqa: ARG001
        at = Expansions(theta)
        at.add(columns, mass, scratch)
        return at.close(total, sums, 0.0, theta)

    return np.roll(minimum(expand, np.roll(start, -1)[None])[0], 1)


@functools.cache
def _upper_triangle(size: int) -> tuple[Indices, Indices]:
    """Return rows and columns of a matrix's upper triangle; finding them costs more than a small pass over rows."""
    return np.triu_indices(size)


def _sum_logs(values: Doubles) -> Doubles:
    """Return sums (C,) of the logs of (C, n) values in [1, 2], via products of up to 64, which do not overflow."""
    for _ in range(6):
        half = values.shape[1] // 2
        if half == 0:
            break
        odd = values[:, 2 * half :]
        values = values[:, :half] * values[:, half : 2 * half]
        values[:, : odd.shape[1]] *= odd
    return np.asarray(np.add.reduce(np.log(values), axis=1))


def _steps(at: Expansions, bounded: int) -> tuple[Doubles, Doubles]:
    """Return Newton steps (C, D), and the initial rate (C,) at which the objectives fall along them."""
    step = _solved(at.hessian, -at.gradient)
    outside = (at.theta[:, :bounded] + step[:, :bounded] < 0).any(axis=1)
    if outside.any():
        step[outside] = _bounded_steps(at.theta[outside], at.gradient[outside], at.hessian[outside])
    return step, -np.einsum("cd,cd->c", at.gradient, step)


def _solved(matrix: Doubles, right: Doubles) -> Doubles:
    """Solve (C, D, D) against (C, D), in units that make the diagonals one."""
    diagonal = np.einsum("cdd->cd", matrix)
    unit = 1 / np.sqrt(np.where(diagonal > 1e-300, diagonal, 1.0))
    scaled = matrix * unit[:, :, None] * unit[:, None, :]
    # Keeps matrices solvable that rounding makes singular, and moves others by no more than rounding does.
    scaled += 1e-14 * np.eye(matrix.shape[1])
    return np.asarray(unit * np.linalg.solve(scaled, (unit * right)[:, :, None])[:, :, 0])


def _bounded_steps(theta: Doubles, gradient: Doubles, hessian: Doubles) -> Doubles:
    """Return steps to the minimum of the quadratic model with the first two parameters 0 or more.

    It lies inside, on one of two edges, or in the corner: the lowest allowed one.
    """
    best, lowest = np.zeros_like(theta), np.full(len(theta), np.inf)
    for fixed, free in (([0], [1, 2]), ([1], [0, 2]), ([0, 1], [2])):
        step = np.zeros_like(theta)
        step[:, fixed] = -theta[:, fixed]
        pulled = gradient + np.einsum("cij,cj->ci", hessian, step)
        step[:, free] = _solved(hessian[:, free][:, :, free], -pulled[:, free])
        model = np.einsum("cd,cd->c", gradient, step) + 0.5 * np.einsum("ci,cij,cj->c", step, hessian, step)
        better = (theta[:, :2] + step[:, :2] >= 0).all(axis=1) & (model < lowest)
        best[better], lowest[better] = step[better], model[better]
    return best


def _kept(theta: Doubles, bounded: int) -> Doubles:
    """Remove the part that rounding puts outside the bounds."""
    np.maximum(theta[:, :bounded], 0, out=theta[:, :bounded])
    return theta


def _gains(at: Expansions, following: Expansions, length: Doubles, decrement: Doubles) -> npt.NDArray[np.bool_]:
    return np.asarray(following.value <= at.value - 0.1 * length * decrement + _ROUNDING * at.size)


def _no_convergence(decrement: float) -> CalibrationFitError:
    found = f"a Newton decrement of {decrement:.3g}"
    return no_convergence("logistic regression", found, f"one of at most {_DONE:g}")
