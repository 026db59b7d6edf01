"""Softmax regression with a diagonal map of many classes: the objective and its minimum.

One pass over the row chunks gives value, gradient, and each class's 2×2 block of the Hessian. Little else couples many
classes, so a quasi-Newton method that starts from the inverted blocks needs few passes.
"""

from __future__ import annotations

import math

import numpy as np

from calibrators.arrays import Doubles
from calibrators.chunks import row_maxima
from calibrators.errors import no_convergence
from calibrators.fitting.feature_chunks import FeatureChunks
from calibrators.fitting.quasi_newton import Expansion, QuasiNewton
from calibrators.validation import LabelledRows

# Accepted gap to the minimum, and the smallest gradient that float64 can tell from zero.
_GAP = 1e-10
_SMALLEST_GRADIENT = 3e-7


class DiagonalObjective:
    """Mean NLL + ½ Σ strength · (θ − target)², θ = (w, b); the scores of features f are w ⊙ f + b.

    Args:
        rows: The data.
        inputs: Their features.
        target: (2K,), zero for each b.
        strength: (2K,), positive, the same for each b. The minimum then has Σ b = 0.
    """

    def __init__(self, rows: LabelledRows, inputs: FeatureChunks, target: Doubles, strength: Doubles) -> None:
        self._rows = rows
        self._inputs = inputs
        self._target = target
        self._strength = strength
        self._classes = len(target) // 2
        self._total = float(len(rows.labels)) if rows.weight is None else float(rows.weight.sum())
        self._own = inputs.label_sums(full=False)

    def minimum(self, start: Doubles) -> tuple[Doubles, Doubles]:
        """Return w and b at the minimum, searched from ``start``.

        If features are read anew for each pass from float32 logits, all passes but the last few use float32.

        Raises:
            CalibrationFitError: No convergence.
        """
        # A strictly convex function lies at most ‖gradient‖² / (2 · least strength) above its minimum.
        tolerance = max(_SMALLEST_GRADIENT, math.sqrt(2 * float(self._strength.min()) * _GAP))
        theta = start.copy()
        theta[self._classes :] -= theta[self._classes :].mean()
        search = QuasiNewton(self._expansion, self._inverse_blocks, theta)
        if self._inputs.single_precision(True):
            search.run(0.9 * tolerance)
            self._inputs.single_precision(False)
        slope = search.run(tolerance)
        if not slope <= 10 * tolerance:
            raise no_convergence("softmax regression", f"a gradient of {slope:.3g}", f"one of at most {tolerance:.3g}")
        return search.theta[: self._classes], search.theta[self._classes :]

    def _expansion(self, theta: Doubles) -> Expansion:
        """Return value, gradient (2K,), and blocks (3, K): curvature by w_k, by w_k and b_k, by b_k."""
        weights, intercepts = theta[: self._classes], theta[self._classes :]
        logs = 0.0
        moments = np.zeros((3, self._classes))
        for part, inputs, possible in self._inputs:
            scores = inputs * weights.astype(inputs.dtype)
            scores += intercepts.astype(inputs.dtype)
            if possible is not None:
                scores[~possible] = -np.inf
            maxima = row_maxima(scores)
            scores -= maxima
            np.exp(scores, out=scores)
            total = np.add.reduce(scores, axis=1, dtype=np.float64)
            losses = np.log(total) + maxima[:, 0]
            inverse = 1 / total
            if self._rows.weight is not None:
                losses *= self._rows.weight[part]
                inverse *= self._rows.weight[part]
            logs += float(losses.sum())
            share = inverse.astype(inputs.dtype)
            for k in range(3):
                moments[k] += share @ scores
                if k < 2:
                    scores *= inputs
        away = theta - self._target
        value = (logs - float(theta @ self._own)) / self._total + 0.5 * float(away @ (self._strength * away))
        gradient = (np.concatenate([moments[1], moments[0]]) - self._own) / self._total + self._strength * away
        return value, gradient, moments[::-1] / self._total

    def _inverse_blocks(self, blocks: Doubles, gradient: Doubles) -> Doubles:
        """Return the inverted blocks, with their penalties, times a gradient; intercepts keep their sum."""
        k = self._classes
        first, last = blocks[0] + self._strength[:k], blocks[2] + self._strength[k:]
        determinant = first * last - blocks[1] ** 2
        step = np.concatenate(
            [
                (last * gradient[:k] - blocks[1] * gradient[k:]) / determinant,
                (first * gradient[k:] - blocks[1] * gradient[:k]) / determinant,
            ]
        )
        step[k:] -= step[k:].mean()
        return step
