"""From calibrated probabilities back to logits, for maps that lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from calibrators.arrays import ArrayLike, Doubles, Floats
from calibrators.calibrator import Calibrator
from calibrators.chunks import probability_chunks
from calibrators.errors import CalibrationDataError
from calibrators.methods.auto import Auto
from calibrators.methods.beta import Beta
from calibrators.methods.centred_isotonic import CentredIsotonic
from calibrators.methods.dirichlet import Dirichlet
from calibrators.methods.ensemble_temperature import EnsembleTemperature
from calibrators.methods.identity import Identity
from calibrators.methods.margins import check_calibrator, first_margins, margin_logits
from calibrators.methods.matrix import Matrix
from calibrators.methods.platt import Platt
from calibrators.methods.prior_shift import PriorShift
from calibrators.methods.shrunk_scaling import ShrunkScaling
from calibrators.methods.structured_matrix import StructuredMatrix
from calibrators.methods.structured_vector import StructuredVector
from calibrators.methods.temperature import Temperature
from calibrators.methods.vector import Vector
from calibrators.softmax import softmax
from calibrators.validation import as_matrix

Inverse: TypeAlias = Callable[[Calibrator, Doubles], Doubles]

# Maximum distance between the probabilities and those of the inverse.
_TOLERANCE = 1e-9
_MAX_STEPS = 200
_FARTHEST = np.finfo(np.float64).max


def inverse(calibrator: Calibrator, probabilities: ArrayLike) -> Doubles:
    """Return logits that the calibrator maps to these probabilities, up to rounding.

    Softmax drops the common height of a row's logits, so the result has a height of its own: the largest logit is zero,
    or, for `vector` and `matrix`, which see the height, the mean is. `temperature`, `identity`, `dirichlet`, the
    structured methods, and with two classes `platt` and `beta`, return the original logits up to that height; `vector`
    and `matrix` return those with mean zero.

    Args:
        calibrator: Fitted: `identity`, `temperature`; `vector`, `matrix`, `dirichlet`, `structured_vector`,
            `structured_matrix` with invertible weights; with two classes `platt` with a slope other than 0, `beta`,
            `ensemble_temperature`, `centred_isotonic`; `prior_shift` and `auto` around one of these. For maps with
            plateaus (`isotonic` and others) see `margin_thresholds`.
        probabilities: (N, K) in [0, 1], rows sum to one. Zeros become −inf if the method distinguishes impossible from
            unlikely; the affine methods refuse them.

    Returns:
        (N, K) float64.

    Raises:
        CalibrationDataError: Invalid probabilities, probabilities that no logits are mapped to, or a method or fitted
            map without an inverse.
        CalibrationFitError: Not fitted.

    References:
        Beta: the equation is Kull, Silva Filho, Flach (2017), section 4; solved by bisection of the numbers themselves.

    Example:
        >>> from calibrators import from_dict
        >>> document = {"method": "temperature", "version": 1, "classes": 2, "temperature": 2, "at_bound": False}
        >>> inverse(from_dict(document), [[0.5, 0.5], [0.2, 0.8]]).round(6).tolist()
        [[0.0, 0.0], [-2.772589, 0.0]]
    """
    check_calibrator(calibrator)
    matrix = as_matrix(probabilities, "probabilities")
    solve = _inverse_of(calibrator)
    calibrator.check_fitted(matrix.shape[1], "probabilities")
    result = np.empty(matrix.shape)
    for rows, chunk in probability_chunks(matrix):
        with np.errstate(divide="ignore"):
            logs = np.log(chunk, dtype=np.float64)
        result[rows] = solve(calibrator, logs)
        missed = ~(np.abs(calibrator.predict_proba(result[rows]) - softmax(logs)).max(axis=1) <= _TOLERANCE)
        if missed.any():
            row = rows.start + int(np.argmax(missed))
            raise CalibrationDataError(
                "Out of range",
                where=f"probabilities[{row}]",
                found=np.array2string(matrix[row], threshold=8),
                expected=f"probabilities that the {calibrator.name} calibrator maps some logits to",
            )
    return result


def _inverse_of(calibrator: Calibrator) -> Inverse:
    if type(calibrator) not in INVERSES:
        subclass = isinstance(calibrator, tuple(INVERSES))
        raise CalibrationDataError(
            "No inverse",
            where=f"{calibrator.name} calibrator",
            found="a subclass, which may use a different map"
            if subclass
            else "a method that maps different logits to the same probabilities",
            expected="one of " + ", ".join(repr(kind.name) for kind in INVERSES),
        )
    return INVERSES[type(calibrator)]


def _identity(calibrator: Calibrator, logs: Doubles) -> Doubles:  # noqa: ARG001
    return _largest_zero(logs)


def _temperature(calibrator: Calibrator, logs: Doubles) -> Doubles:
    return _largest_zero(logs) * cast("Temperature", calibrator).temperature_


def _platt(calibrator: Calibrator, logs: Doubles) -> Doubles:
    fitted = cast("Platt", calibrator)
    _check_binary(calibrator)
    if fitted.top_label_only:
        _refuse(calibrator, "on the margin, which two classes reach from both sides", 'on="log_odds"')
    if fitted.slopes_[0] == 0:
        _refuse(calibrator, "constant (slope 0)", "a slope other than 0")
    odds = logs[:, 1] - logs[:, 0]
    # Certain rows stay certain for any slope.
    return margin_logits(np.where(np.isinf(odds), odds, (odds - fitted.intercepts_[0]) / fitted.slopes_[0]))


def _rising(calibrator: Calibrator, logs: Doubles) -> Doubles:
    """Return the middle of all margins mapped to each row; if they have no end, the nearest to the others."""
    _check_binary(calibrator)
    ends = calibrator.predict_proba(margin_logits(np.array([-_FARTHEST, _FARTHEST])))
    if ends[0, 1] == ends[1, 1]:
        _refuse(calibrator, "constant", "a map that is not constant")
    wanted = softmax(logs)
    possible = np.clip(wanted, ends.min(axis=0), ends.max(axis=0))
    # The smaller of the two probabilities has more digits.
    small = possible[:, 1] <= possible[:, 0]

    def reached(chances: Floats) -> npt.NDArray[np.bool_]:
        return np.where(small, chances[:, 1] >= possible[:, 1], chances[:, 0] <= possible[:, 0])

    def exceeded(chances: Floats) -> npt.NDArray[np.bool_]:
        return np.where(small, chances[:, 1] > possible[:, 1], chances[:, 0] < possible[:, 0])

    first = first_margins(calibrator, reached, len(logs))
    last = np.nextafter(first_margins(calibrator, exceeded, len(logs)), -np.inf)
    first, last = np.where(first <= -_FARTHEST, last, first), np.where(last >= _FARTHEST, first, last)
    margins = first / 2 + last / 2
    return margin_logits(np.where(wanted[:, 1] == 0, -np.inf, np.where(wanted[:, 0] == 0, np.inf, margins)))


def _affine(calibrator: Calibrator, logs: Doubles) -> Doubles:
    """Solve W z + b = log p + c for z of mean zero, and c."""
    fitted = cast("Vector | Matrix", calibrator)
    classes = fitted.classes_
    system = np.zeros((classes + 1, classes + 1))
    system[:classes, :classes] = _square(fitted.weights_)
    system[:classes, classes], system[classes, :classes] = -1, 1
    right = np.zeros((classes + 1, len(logs)))
    right[:classes] = (logs - fitted.intercepts_).T
    return _solve(calibrator, system, right)[:classes].T


def _dirichlet(calibrator: Calibrator, logs: Doubles) -> Doubles:
    fitted = cast("Dirichlet", calibrator)
    return _largest_zero(_log_probabilities_before(fitted, fitted.weights_, fitted.intercepts_, logs))


def _structured(calibrator: Calibrator, logs: Doubles) -> Doubles:
    fitted = cast("ShrunkScaling", calibrator)
    before = _log_probabilities_before(fitted, fitted.weights_, fitted.intercepts_, logs)
    return _largest_zero(before) * fitted.temperature_


def _log_probabilities_before(calibrator: Calibrator, weights: Doubles, intercepts: Doubles, logs: Doubles) -> Doubles:
    """Solve W f + b = log p + c for f with Σ exp f = 1, and c: f = u + c v, one c if v = W⁻¹ 1 is positive."""
    square = _square(weights)
    base = _solve(calibrator, square, (logs - intercepts).T).T
    direction = _solve(calibrator, square, np.ones(len(square)))
    if (direction <= 0).any():
        _refuse(calibrator, "ambiguous: several logits, or none, fit", "weights whose inverse has positive row sums")
    # log Σ exp(u + c v) is convex and rises in c; Newton's steps from a largest term of one descend to its root.
    height = (-base / direction).min(axis=1, keepdims=True)
    for _ in range(_MAX_STEPS):
        terms = np.exp(base + height * direction)
        total = terms.sum(axis=1, keepdims=True)
        step = np.log(total) * total / (terms @ direction)[:, None]
        height = height - step
        if (np.abs(step) <= 1e-15 * (1 + np.abs(height))).all():
            break
    return np.asarray(base + height * direction)


def _prior_shift(calibrator: Calibrator, logs: Doubles) -> Doubles:
    fitted = cast("PriorShift", calibrator)
    solve = _inverse_of(fitted.calibrator_)
    if not fitted.adapted_:
        return solve(fitted.calibrator_, logs)
    if not fitted.target_priors_.all():
        _refuse(calibrator, "a target prior of 0", "priors above 0")
    before = _largest_zero(logs + np.log(fitted.source_priors_) - np.log(fitted.target_priors_))
    return solve(fitted.calibrator_, before - np.log(np.exp(before).sum(axis=1, keepdims=True)))


def _auto(calibrator: Calibrator, logs: Doubles) -> Doubles:
    fitted = cast("Auto", calibrator)
    if fitted.floor_ > 0:
        _refuse(calibrator, f"fitted with a floor of {fitted.floor_:.3g}", "a fit without a floor")
    return _inverse_of(fitted.calibrator_)(fitted.calibrator_, logs)


INVERSES: dict[type[Calibrator], Inverse] = {
    Identity: _identity,
    Temperature: _temperature,
    Platt: _platt,
    Beta: _rising,
    CentredIsotonic: _rising,
    EnsembleTemperature: _rising,
    Vector: _affine,
    Matrix: _affine,
    Dirichlet: _dirichlet,
    StructuredVector: _structured,
    StructuredMatrix: _structured,
    PriorShift: _prior_shift,
    Auto: _auto,
}


def _largest_zero(logs: Doubles) -> Doubles:
    return np.asarray(logs - logs.max(axis=1, keepdims=True))


def _solve(calibrator: Calibrator, system: Doubles, right: Doubles) -> Doubles:
    if np.isneginf(right).any():
        _refuse(calibrator, "asked for a probability of 0", "probabilities above 0")
    try:
        return np.asarray(np.linalg.solve(system, right), np.float64)
    except np.linalg.LinAlgError:
        _refuse(calibrator, "singular", "weights that can be inverted")


def _square(weights: Doubles) -> Doubles:
    return weights if weights.ndim == 2 else np.diag(weights)


def _check_binary(calibrator: Calibrator) -> None:
    if calibrator.classes_ != 2:
        _refuse(calibrator, f"fitted for {calibrator.classes_} classes", "a fit for two classes")


def _refuse(calibrator: Calibrator, found: str, expected: str) -> NoReturn:
    raise CalibrationDataError("No inverse", where=f"{calibrator.name} calibrator", found=found, expected=expected)
