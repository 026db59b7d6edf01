"""Maps of scores: temperatures, affine maps and mixtures of softmaxes."""

from __future__ import annotations

import numpy as np

from calibrators import (
    Dirichlet,
    EnsembleTemperature,
    Identity,
    Matrix,
    StructuredMatrix,
    StructuredVector,
    Temperature,
    Vector,
)
from service.inference.onnx_graph.rows import Rows, clipped, softmax_below
from service.inference.onnx_graph.values import (
    Doubles,
    Value,
    as_type,
    exp,
    greatest,
    log,
    product,
    row_maximum,
    row_sum,
    where,
)

# What an impossible class counts as among the features of others, and what is least among log-probabilities.
_LOWEST = -87.3
_FARTHEST = 1e300


def identity(rows: Rows, calibrator: Identity) -> Value:  # noqa: ARG001
    """Plain softmax."""
    return rows.softmax


def temperature(rows: Rows, calibrator: Temperature) -> Value:
    """softmax(z / T)."""
    return softmax_below(rows.below * (1.0 / calibrator.temperature_))


def ensemble_temperature(rows: Rows, calibrator: EnsembleTemperature) -> Value:
    """A mixture of softmax(z / T), softmax(z) and the uniform over what is possible."""
    possible = as_type(rows.possible, np.float64)
    tempered = softmax_below(rows.below / calibrator.temperature_)
    first, second, third = (float(weight) for weight in calibrator.weights_)
    mixed = tempered * first + rows.softmax * second + possible / row_sum(possible) * third
    return mixed / row_sum(mixed)


def affine(rows: Rows, calibrator: Vector | Matrix) -> Value:
    """softmax(W z + b)."""
    features = where(rows.possible, rows.logits, rows.maxima + _LOWEST)
    return _mapped(rows, features, calibrator.weights_, calibrator.intercepts_)


def dirichlet(rows: Rows, calibrator: Dirichlet) -> Value:
    """softmax(W log q + b) of the plain softmax q."""
    features = where(rows.possible, _log_softmax(rows.below), _LOWEST)
    return _mapped(rows, features, calibrator.weights_, calibrator.intercepts_)


def structured(rows: Rows, calibrator: StructuredVector | StructuredMatrix) -> Value:
    """softmax(A log softmax(z / T) + b)."""
    features = greatest(_log_softmax(rows.below / calibrator.temperature_), _LOWEST)
    return _mapped(rows, features, calibrator.weights_, calibrator.intercepts_)


def _log_softmax(below: Value) -> Value:
    return below - log(row_sum(exp(below)))


def _mapped(rows: Rows, features: Value, weights: Doubles, intercepts: Doubles) -> Value:
    scores = product(features, weights.T) if weights.ndim == 2 else features * weights
    scores = where(rows.possible, clipped(scores + intercepts, -_FARTHEST, _FARTHEST), -np.inf)
    return softmax_below(scores - row_maximum(scores))
