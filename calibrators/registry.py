"""Look up methods by name, for calibrators that contain others.

The package fills `CALIBRATORS` after importing every method, so the registry reads it at the time of use.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from calibrators.calibrator import Calibrator
from calibrators.documents import Document
from calibrators.effective_rows import WeightKind
from calibrators.errors import CalibrationDataError


def registered(name: object, where: str, without: tuple[str, ...]) -> type[Calibrator]:
    """Return the class of a method.

    Raises:
        CalibrationDataError: An unknown name, or one of ``without``.
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
    """Return the given unfitted calibrator, or make one by name with this ``weight_kind``.

    Raises:
        CalibrationDataError: As `registered`.
    """
    if isinstance(calibrator, Calibrator):
        if calibrator.name in without:
            registered(calibrator.name, where, without)
        return calibrator
    method: Callable[..., Calibrator] = registered(calibrator, where, without)
    # Methods that only average over rows do not have this option.
    counts = "weight_kind" in inspect.signature(method).parameters
    return method(weight_kind=weight_kind) if counts else method()


def restored(document: object, without: tuple[str, ...] = ()) -> Calibrator:
    """Restore a calibrator of any method except ``without`` from its document.

    Raises:
        CalibrationDataError: As `calibrators.from_dict`.
    """
    method = Document(document).anything("method")
    return registered(method, "field 'method'", without).from_dict(document)
