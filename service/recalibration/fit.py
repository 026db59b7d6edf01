"""The fit of a recalibration."""

from __future__ import annotations

from collections.abc import Sequence

from calibrators import CALIBRATORS, CalibrationError, Calibrator, Temperature
from service.decisions.multicalibrated import METHOD, Multicalibrated, probabilities_of
from service.decisions.rows import Rows
from service.errors import InputValueError, TooFewLabelsError
from service.places import in_body

# With fewer errors among the fit rows a temperature is uncertain, so it is shrunk towards the active one.
_ENOUGH_ERRORS = 25


def fit(method: str, rows: Rows, active: Calibrator, columns: Sequence[str]) -> Calibrator:
    """Return a calibrator fitted on weighted rows.

    Args:
        method: A registered name, or "multicalibration".
        rows: The rows, all labelled.
        active: The active calibrator.
        columns: Columns of a multicalibration.

    Raises:
        InputValueError: The calibrator cannot be fitted on these rows.
        TooFewLabelsError: Too few of their predictions are wrong, and the method is not one that can be shrunk.
    """
    candidate: Calibrator
    try:
        if method == METHOD:
            candidate = Multicalibrated.fitted_on(rows, columns)
        else:
            candidate = CALIBRATORS[method]().fit_grouped(rows.logits, rows.label, rows.group, rows.weight)
    except CalibrationError as error:
        raise InputValueError(
            f"The calibrator {method!r} cannot be fitted: {error}", where=in_body("calibrator")
        ) from error
    top_labels, _ = active.top_label(rows.logits, probabilities_of(active, rows.logits, rows.cells))
    errors = int((top_labels != rows.label).sum())
    if errors >= _ENOUGH_ERRORS or method == "identity":
        return candidate
    if isinstance(candidate, Temperature):
        before = active.temperature_ if isinstance(active, Temperature) else 1.0
        share = errors / _ENOUGH_ERRORS
        shrunk = candidate.temperature_**share * before ** (1 - share)
        return Temperature.from_dict({**candidate.to_dict(), "temperature": shrunk, "at_bound": False})
    raise TooFewLabelsError(
        f"The calibrator {method!r} requires more wrong predictions to learn from.",
        where=in_body("calibrator"),
        found=f"{errors} wrong predictions among {len(rows)} fit rows",
        expected=f"at least {_ENOUGH_ERRORS}",
        remedy="Collect more labels, or choose `temperature`, which is shrunk towards the active one.",
    )
