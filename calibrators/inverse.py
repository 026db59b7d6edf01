"""Back from calibrated probabilities to logits, for the maps that lose nothing on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from calibrators.arrays import ArrayLike, Doubles, Floats
from calibrators.auto import Auto
from calibrators.beta import Beta
from calibrators.calibrator import Calibrator
from calibrators.centred_isotonic import CentredIsotonic
from calibrators.chunks import probability_chunks
from calibrators.dirichlet import Dirichlet
from calibrators.ensemble_temperature import EnsembleTemperature
from calibrators.errors import CalibrationDataError
from calibrators.identity import Identity
from calibrators.margins import check_calibrator, first_margins, margin_logits
from calibrators.matrix import Matrix
from calibrators.platt import Platt
from calibrators.prior_shift import PriorShift
from calibrators.shrunk_scaling import ShrunkScaling
from calibrators.softmax import softmax
from calibrators.structured_matrix import StructuredMatrix
from calibrators.structured_vector import StructuredVector
from calibrators.temperature import Temperature
from calibrators.validation import as_matrix
from calibrators.vector import Vector

Inverse: TypeAlias = Callable[[Calibrator, Doubles], Doubles]

# Logits that are mapped farther than this from the probabilities are no inverse.
_TOLERANCE = 1e-9
_MAX_STEPS = 200
_FARTHEST = np.finfo(np.float64).max


def inverse(calibrator: Calibrator, probabilities: ArrayLike) -> Doubles:
    """Logits that the calibrator maps to given probabilities: ``predict_proba(inverse(p))`` is p, but for rounding.

    Softmax drops the common height of a row's logits, so they come back at a height of their own: the largest is zero,
    or, for `vector` and `matrix`, which do see the height, their mean is. `temperature`, `identity`, `dirichlet`, the
    structured ones, and with two classes `platt` and `beta`, bring back the very logits up to that height; `vector`
    and `matrix` those whose mean was zero.

    Args:
        calibrator: Fitted: `identity`, `temperature`; `vector`, `matrix`, `dirichlet`, `structured_vector`,
            `structured_matrix` where their weights can be inverted; with two classes `platt` of a slope other than 0,
            `beta`, `ensemble_temperature`, `centred_isotonic`; `prior_shift` and `auto` where what they wrap is one
            of these. With plateaus (`isotonic` and the like) see `margin_thresholds`.
        probabilities: (N, K) in [0, 1], rows sum to one. Zeros come back as −inf where the method keeps what is
            impossible apart from what is unlikely, and are refused by the affine ones.

    Returns:
        (N, K) float64.

    Raises:
        CalibrationDataError: Probabilities that no logits are mapped to, or that are none; a method or a fitted map
            without an inverse.
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
            found="a subclass, whose map may be another one"
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
        _refuse(calibrator, "of the margin, which two classes reach from both sides", "one of log-odds")
    if fitted.slopes_[0] == 0:
        _refuse(calibrator, "of slope 0", "one that is not constant")
    odds = logs[:, 1] - logs[:, 0]
    # What is certain stays so whatever the slope.
    return margin_logits(np.where(np.isinf(odds), odds, (odds - fitted.intercepts_[0]) / fitted.slopes_[0]))


def _rising(calibrator: Calibrator, logs: Doubles) -> Doubles:
    """The middle of all margins that are mapped to each row; of those without end the nearest to the others."""
    _check_binary(calibrator)
    ends = calibrator.predict_proba(margin_logits(np.array([-_FARTHEST, _FARTHEST])))
    if ends[0, 1] == ends[1, 1]:
        _refuse(calibrator, "constant", "one that is not")
    wanted = softmax(logs)
    possible = np.clip(wanted, ends.min(axis=0), ends.max(axis=0))
    # Of the two probabilities the smaller one has more digits.
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
    """Solves W z + b = log p + c for z of mean zero, and c."""
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
    """Solves W f + b = log p + c for f with Σ exp f = 1, and c: f = u + c v, one c where v = W⁻¹ 1 is positive."""
    square = _square(weights)
    base = _solve(calibrator, square, (logs - intercepts).T).T
    direction = _solve(calibrator, square, np.ones(len(square)))
    if (direction <= 0).any():
        _refuse(calibrator, "a map that several logits, or none, solve", "weights whose inverse has positive row sums")
    # log Σ exp(u + c v) is convex and rises in c; from where the largest term is one Newton's steps fall onto its root.
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
    chosen = cast("Auto", calibrator).calibrator_
    return _inverse_of(chosen)(chosen, logs)


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
        _refuse(calibrator, "of singular weights", "weights that can be inverted")


def _square(weights: Doubles) -> Doubles:
    return weights if weights.ndim == 2 else np.diag(weights)


def _check_binary(calibrator: Calibrator) -> None:
    if calibrator.classes_ != 2:
        _refuse(calibrator, f"for {calibrator.classes_} classes, mixed or divided by their sum", "one for two classes")


def _refuse(calibrator: Calibrator, found: str, expected: str) -> NoReturn:
    raise CalibrationDataError("No inverse", where=f"{calibrator.name} calibrator", found=found, expected=expected)
