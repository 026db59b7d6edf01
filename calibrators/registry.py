"""The registry, for calibrators that are made of others.

The package imports every calibrator to fill `CALIBRATORS`, so these look it up when they are used, not when imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from calibrators.calibrator import Calibrator
from calibrators.effective_rows import WeightKind
from calibrators.errors import CalibrationDataError


def registered(name: object, where: str, without: tuple[str, ...] = ()) -> type[Calibrator]:
    """The class of a method's name.

    Raises:
        CalibrationDataError: No such method, or one of those in ``without``.
    """
    from calibrators import CALIBRATORS

    if not isinstance(name, str) or name not in CALIBRATORS or name in without:
        raise CalibrationDataError(
            "Unknown method",
            where=where,
            found=repr(name),
            expected="one of " + ", ".join(repr(known) for known in CALIBRATORS if known not in without),
        )
    return CALIBRATORS[name]


def unfitted(
    calibrator: str | Calibrator, where: str, weight_kind: WeightKind, without: tuple[str, ...] = ()
) -> Calibrator:
    """A calibrator to fit: of a method's name, its weights counting for what ``weight_kind`` says, or the given one.

    Raises:
        CalibrationDataError: As `registered`.
    """
    if isinstance(calibrator, Calibrator):
        if calibrator.name in without:
            registered(calibrator.name, where, without)
        return calibrator
    method: Callable[..., Calibrator] = registered(calibrator, where, without)
    # Methods that only average over rows need not be told.
    counts = "weight_kind" in inspect.signature(method).parameters
    return method(weight_kind=weight_kind) if counts else method()


def restored(document: object, without: tuple[str, ...] = ()) -> Calibrator:
    """A calibrator of any method, but those in ``without``, from its document.

    Raises:
        CalibrationDataError: As `calibrators.from_dict`.
    """
    from calibrators import from_dict

    if isinstance(document, dict) and document.get("method") in without:
        registered(document["method"], "field 'method'", without)
    return from_dict(document)
