"""The registry, for calibrators that are made of others.

The package imports every calibrator to fill `CALIBRATORS`, so these look it up when they are used, not when imported.
"""

from __future__ import annotations

from calibrators.calibrator import Calibrator
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


def restored(document: object, without: tuple[str, ...] = ()) -> Calibrator:
    """A calibrator of any method, but those in ``without``, from its document.

    Raises:
        CalibrationDataError: As `calibrators.from_dict`.
    """
    from calibrators import from_dict

    if isinstance(document, dict) and document.get("method") in without:
        registered(document["method"], "field 'method'", without)
    return from_dict(document)
