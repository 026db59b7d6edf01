"""Multinomial logistic regression on K features of K classes: the basis of vector, matrix and Dirichlet scaling.

The scores of a row are ``A f + b``, with f its standardised features, and its probabilities their softmax. A is
diagonal or full. The mean NLL plus a quadratic penalty is strictly convex; ``softmax_objective.py`` finds its minimum.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from calibrators.arrays import Doubles
from calibrators.errors import CalibrationDataError, shown
from calibrators.fitting.best_temperature import best_temperature
from calibrators.fitting.diagonal_objective import DiagonalObjective
from calibrators.fitting.feature_chunks import FeatureChunks, Features
from calibrators.fitting.softmax_objective import (
    FEW_PARAMETERS,
    GRADIENT_TOLERANCE,
    SoftmaxObjective,
    apply_affine,
    softmax_where,
)
from calibrators.softmax import log_softmax_in_place
from calibrators.validation import LabelledRows

# Keeps the optimum finite if the data do not (a class without labels, separable rows). Otherwise it
# costs half of RIDGE² δ² / curvature in mean NLL, below 1e-7 for data that determine their parameters. With it, a
# gradient below the tolerance leaves at most tolerance² / (2 RIDGE) = 5e-8 of the objective.
RIDGE = 1e-6
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
        """Return the softmax (n, K) of the scores of features (n, K); exactly zero if not ``possible`` (n, K)."""
        scores = apply_affine(self.weights, features) + self.intercepts
        broken = ~np.isfinite(scores).all(axis=1) if self.weights.ndim == 2 else np.False_
        if broken.any():
            # Terms or partial sums may be infinite, of either sign, depending on the order of addition; among terms
            # of at most 1 the sum has the right sign.
            heaviest, highest = np.abs(self.weights).max(), np.abs(features[broken]).max(axis=1, keepdims=True)
            sums = apply_affine(self.weights / heaviest, features[broken] / highest)
            scores[broken] = sums * highest * heaviest + self.intercepts
        return softmax_where(scores, possible)


def raw_logits(logits: Doubles, maxima: Doubles) -> Doubles:
    """Return the logits as features; −inf becomes the row's largest logit minus 87.3."""
    if np.minimum.reduce(logits, axis=None, initial=0) > -np.inf:
        return logits
    return np.where(np.isneginf(logits), maxima + _IMPOSSIBLE, logits)


def log_probabilities(logits: Doubles, maxima: Doubles) -> Doubles:
    """Return the logarithms of the softmax as features; −inf becomes −87.3."""
    return np.where(np.isneginf(logits), _IMPOSSIBLE, log_softmax_in_place(logits.copy(), maxima))


def fit_affine(
    rows: LabelledRows,
    features: Features,
    *,
    full: bool,
    off_diagonal: float = 0.0,
    intercept: float = 0.0,
    near: AffineMap | None = None,
    tolerance: float = GRADIENT_TOLERANCE,
) -> AffineMap:
    """Minimise mean NLL + penalties.

    Features are standardised first (columns centred, all divided by one standard deviation), so that the penalties do
    not depend on the logits' scale.

    Args:
        rows: The data.
        features: Makes (n, K) features from a chunk of logits and their (n, 1) row maxima.
        full: A full matrix, or a diagonal one.
        off_diagonal: Penalty on the mean square of the off-diagonal entries.
        intercept: Penalty on the mean square of the intercepts.
        near: A map of nearly the same rows and penalties, to start from; None: temperature scaling.
        tolerance: Largest norm of the gradient at the end, where there are many parameters.

    Raises:
        CalibrationDataError: Invalid logits.
        CalibrationFitError: No convergence.
    """
    temperature, at_bound = best_temperature(rows) if near is None else (1.0, False)
    rows, classes = rows.relative(), rows.logits.shape[1]
    inputs = FeatureChunks(rows, features)
    centre, scale = inputs.standardise()
    target = np.eye(classes) if full else np.ones(classes)
    strength = np.full(target.shape, RIDGE)
    if full:
        strength += 2 * off_diagonal / (classes * (classes - 1)) * (1 - np.eye(classes))
    start = None
    if near is not None:
        start = np.concatenate(
            [(scale * near.weights).ravel(), near.intercepts + apply_affine(near.weights, centre[None])[0]]
        )
    elif not at_bound:
        inverse = 1 / temperature
        start = np.concatenate([(scale * inverse * target).ravel(), (centre - centre.mean()) * inverse])
    weights, intercepts = _minimum(rows, inputs, target, strength, RIDGE + 2 * intercept / classes, start, tolerance)
    weights = weights / scale
    return AffineMap(weights, intercepts - apply_affine(weights, centre[None])[0])


def fit_shrunk(
    rows: LabelledRows, features: Features, *, full: bool, diagonal: float, off_diagonal: float, intercept: float
) -> AffineMap:
    """Minimise mean NLL + diagonal · Σ (A_ii − 1)² + off_diagonal · Σ A_ij² (i ≠ j) + intercept · Σ b_i².

    Arguments and errors as `fit_affine`, but features are not standardised: with large penalties the map is the
    identity.
    """
    rows, classes = rows.relative(), rows.logits.shape[1]
    target = np.eye(classes) if full else np.ones(classes)
    strength = np.where(target == 1, 2 * diagonal, 2 * off_diagonal) + RIDGE
    return AffineMap(*_minimum(rows, FeatureChunks(rows, features), target, strength, RIDGE + 2 * intercept, None))


def _minimum(
    rows: LabelledRows,
    inputs: FeatureChunks,
    target: Doubles,
    strength: Doubles,
    intercept_strength: float,
    start: Doubles | None,
    tolerance: float = GRADIENT_TOLERANCE,
) -> tuple[Doubles, Doubles]:
    """Minimise mean NLL + ½ Σ strength · (A − target)² + ½ intercept_strength · Σ b², from ``start`` or the target."""
    classes = len(target)
    flat_target = np.concatenate([target.ravel(), np.zeros(classes)])
    flat_strength = np.concatenate([strength.ravel(), np.full(classes, intercept_strength)])
    start = flat_target if start is None else start
    if target.ndim == 1 and len(start) > FEW_PARAMETERS:
        return DiagonalObjective(rows, inputs, flat_target, flat_strength).minimum(start)
    return SoftmaxObjective(rows, inputs, target.shape, flat_target, flat_strength).minimum(start, tolerance)


def check_penalty(value: float, name: str) -> float:
    """Return a penalty as float; refuse anything but a finite number of 0 or more with CalibrationDataError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
        raise CalibrationDataError(
            "Bad option", where=name, found=shown(value), expected="a finite number of 0 or more"
        )
    return float(value)
