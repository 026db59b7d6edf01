"""From the calibrated scale back to margins, for two classes and every map that keeps the order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from calibrators.arrays import ArrayLike, Doubles, Floats
from calibrators.bisection import first_numbers
from calibrators.calibrator import Calibrator
from calibrators.errors import CalibrationDataError, shown
from calibrators.methods.auto import Auto
from calibrators.methods.platt import Platt
from calibrators.methods.pool import Pool
from calibrators.methods.prior_shift import PriorShift
from calibrators.validation import as_array, check_choice

Side: TypeAlias = Literal["left", "right"]


def margin_thresholds(
    calibrator: Calibrator,
    probabilities: ArrayLike,
    side: Side = "left",
    dtype: npt.DTypeLike = np.float64,
) -> Doubles:
    """Return the margins at which calibrated probabilities of class 1 are reached: thresholds before calibration.

    A row with margin z_1 − z_0 has a calibrated probability of at least p exactly if its margin is at least the result
    (more than p, for ``side="right"``). So the margins calibrated to p itself, such as a plateau, run from the left
    result up to below the right one. The search bisects the float64 numbers themselves, without tolerance. It holds for
    logits with a larger one of zero; at other heights, and if the map wavers in its last bits (`ensemble_temperature`),
    probabilities within rounding of p may differ.

    Args:
        calibrator: Fitted for two classes, with a map that keeps the order: `identity`, `temperature`, `beta`,
            `isotonic`, `centred_isotonic`, `isotonic_multiclass`, `ensemble_temperature`, `venn_abers`; `platt` with
            a slope of 0 or more; `prior_shift` and `auto` around one of these.
        probabilities: Any shape, in [0, 1].
        side: ``"left"``: the first margin that reaches p. ``"right"``: the first that exceeds it.
        dtype: float64 or float32, the type of the logits: calibrated probabilities are compared in it.

    Returns:
        float64 of the shape of ``probabilities``; −inf if rows of probability 0 also reach p, +inf if only rows with
        certain logits do, or none.

    Raises:
        CalibrationDataError: A probability outside [0, 1], more than two classes, or a map that may reverse the order.
        CalibrationFitError: Not fitted.

    Example:
        >>> from calibrators import from_dict
        >>> calibrator = from_dict({"method": "platt", "version": 1, "classes": 2, "slopes": [0.5], "intercepts": [1]})
        >>> margin_thresholds(calibrator, [0.5, 0.9]).round(6).tolist()
        [-2.0, 2.394449]
    """
    check_choice(side, ("left", "right"), "side")
    kind = _real_type(dtype)
    check_order(calibrator)
    wanted = as_array(probabilities, "probabilities")
    if wanted.dtype.kind not in "fiu" or not ((wanted >= 0) & (wanted <= 1)).all():
        raise CalibrationDataError(
            "Bad probability", where="probabilities", found=shown(probabilities), expected="numbers from 0 to 1"
        )
    targets = wanted.reshape(-1)

    def reached(chances: Floats) -> npt.NDArray[np.bool_]:
        compared: Floats = chances[:, 1].astype(kind)
        return np.asarray(compared >= targets if side == "left" else compared > targets)

    return first_margins(calibrator, reached, targets.size).reshape(wanted.shape)


def first_margins(calibrator: Calibrator, reached: Callable[[Floats], npt.NDArray[np.bool_]], count: int) -> Doubles:
    """Return the least margins (n,), −inf … +inf, at which ``reached`` holds for the probabilities (n, 2)."""
    return first_numbers(lambda margins: reached(calibrator.predict_proba(margin_logits(margins))), count)


def margin_logits(margins: Doubles) -> Doubles:
    """Return logits (n, 2) of margins (n,), the larger one of each row zero."""
    return np.stack([np.minimum(-margins, 0), np.minimum(margins, 0)], axis=1)


def check_calibrator(calibrator: object) -> None:
    """Refuse anything but a `Calibrator`, such as the name of one."""
    if not isinstance(calibrator, Calibrator):
        raise CalibrationDataError(
            "Wrong type",
            where="calibrator",
            found=shown(calibrator) if isinstance(calibrator, str) else f"a {type(calibrator).__name__}",
            expected="a fitted Calibrator",
        )


def check_order(calibrator: Calibrator) -> None:
    """Refuse a calibrator that is not fitted, does not have two classes, or may reverse the order of two rows."""
    check_calibrator(calibrator)
    if isinstance(calibrator, Auto | PriorShift) and calibrator.classes_ == 2:
        check_order(calibrator.calibrator_)
        return
    if isinstance(calibrator, Pool) and calibrator.classes_ == 2:
        for one in calibrator.members:
            check_order(one)
        return
    calibrator.check_fitted()
    rising = calibrator.preserves_order
    if isinstance(calibrator, Platt) and not calibrator.top_label_only:
        rising = bool((calibrator.slopes_ >= 0).all())
    if calibrator.classes_ not in (0, 2) or not rising:
        raise CalibrationDataError(
            "No order to invert",
            where=f"{calibrator.name} calibrator",
            found="able to reverse the order of rows" if not rising else f"fitted for {calibrator.classes_} classes",
            expected="a fit for two classes that keeps the order",
        )


def _real_type(dtype: npt.DTypeLike) -> type[np.float64 | np.float32]:
    for known in (np.float64, np.float32):
        try:
            if np.dtype(dtype) == np.dtype(known):
                return known
        except TypeError:
            break
    raise CalibrationDataError("Unknown option", where="dtype", found=shown(dtype), expected="float64 or float32")
