"""Adjust the active calibrator to new class frequencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrators import Calibrator, PriorShift
from calibrators import from_dict as calibrator_from_dict
from service.decisions.multicalibrated import require_no_columns
from service.errors import InputValueError
from service.places import Place, in_body
from service.serving.plane import Served

_ALL = 1e-6  # tolerance of the sum of frequencies if every class is named


def shares(
    named: Mapping[str, float], labels: Sequence[str], others: npt.NDArray[np.float64], where: Place
) -> npt.NDArray[np.float64]:
    """Return the frequency (K,) of each class: as named, and the others in proportion to `others`.

    Args:
        named: Frequencies in (0, 1), by label.
        labels: The model's K labels.
        others: float64 (K,), positive: proportions of the other classes.
        where: Place of `named` in the request.

    Raises:
        InputValueError: A label is unknown, nothing is left for the other classes, or the sum is not one.
    """
    for label, share in named.items():
        if label not in labels:
            raise InputValueError("Unknown label.", where=where / label, found=label[:200], expected=list(labels))
        if not 0 < share < 1:
            raise InputValueError(
                "The frequency of a class must be in (0, 1).",
                where=where / label,
                found=share,
                expected="in (0, 1)",
            )
    given = np.array([named.get(label, np.nan) for label in labels])
    missing, total = np.isnan(given), float(np.nansum(given))
    if missing.any() and total >= 1:
        raise InputValueError(
            "The frequencies leave nothing for the other classes.", where=where, found=total, expected="less than 1"
        )
    if not missing.any() and abs(total - 1) > _ALL:
        raise InputValueError("The frequencies of all classes must sum to one.", where=where, found=total, expected=1)
    rest = np.where(missing, others, 0.0)
    filled = np.where(missing, rest / max(rest.sum(), np.finfo(float).tiny) * (1 - total), given)
    return np.asarray(filled / filled.sum())


def source_shares(served: Served, named: Mapping[str, float] | None) -> npt.NDArray[np.float64]:
    """Return the class frequencies (K,) that the active calibrator assumes.

    They are named, or those of the bundle's reference rows if the bundle's calibrator is active.

    Raises:
        InputValueError: The calibrator was fitted on traffic of unknown frequencies, and none are named.
        RevisionStateError: It reads columns.
    """
    require_no_columns(served.calibrator)
    inner, rows, of_bundle = _inner(served.calibrator), served.bundle.reference.fit.logits, served.bundle.calibrator
    reference = np.maximum(of_bundle.predict_proba(rows).mean(axis=0, dtype=np.float64), np.finfo(float).tiny)
    if named is not None:
        return shares(named, served.labels, reference, in_body("source"))
    if inner.to_dict() == of_bundle.to_dict():
        return np.asarray(reference / reference.sum())
    raise InputValueError(
        "The active calibrator was fitted on traffic, so the request must name the class frequencies of that traffic.",
        where=in_body("source"),
        found="none",
        expected=f"frequencies of {', '.join(served.labels[:20])}",
        remedy="Take them from GET …/monitoring (`base_rate`), or roll back to the bundle's calibrator first.",
    )


def shifted(served: Served, source: npt.NDArray[np.float64]) -> PriorShift:
    """Return the active calibrator, wrapped but not adjusted yet, for the class frequencies `source` (K,)."""
    priors = source.tolist()
    document: dict[str, Any] = {
        "method": PriorShift.name,
        "version": PriorShift.version,
        "classes": len(priors),
        "weight_kind": "importance",
        "calibrator": _inner(served.calibrator).to_dict(),
        "adapted": False,
        **dict.fromkeys(("source_priors", "target_priors", "lower_priors", "upper_priors"), priors),
    }
    wrapped = calibrator_from_dict(document)
    assert isinstance(wrapped, PriorShift)  # noqa: S101 - by its name
    return wrapped


def _inner(calibrator: Calibrator) -> Calibrator:
    return calibrator.calibrator_ if isinstance(calibrator, PriorShift) else calibrator
