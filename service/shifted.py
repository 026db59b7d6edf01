"""The calibrator in service, carried over to other shares of the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from calibrators import Calibrator, PriorShift
from calibrators import from_dict as calibrator_from_dict
from service.errors import InputValueError
from service.plane import Served

_ALL = 1e-6  # how far from one shares that name every class may add up to


def shares(
    named: Mapping[str, float], labels: Sequence[str], others: npt.NDArray[np.float64], where: str
) -> npt.NDArray[np.float64]:
    """Return the share (K,) of each class: of those that are named as said, of the others in their proportions.

    Args:
        named: Shares in (0, 1), by label.
        labels: The model's K labels.
        others: float64 (K,), positive: what the classes that are not named are in proportion to.
        where: JSON pointer of `named`.

    Raises:
        InputValueError: A label is unknown, none or no share is left for the others, or all do not add up to one.
    """
    for label, share in named.items():
        if label not in labels:
            raise InputValueError(
                "The model has no such label.", where=f"{where}/{label}", found=label[:200], expected=list(labels)
            )
        if not 0 < share < 1:
            raise InputValueError(
                "The share of a class is in (0, 1).",
                where=f"{where}/{label}",
                found=share,
                expected="in (0, 1)",
            )
    given = np.array([named.get(label, np.nan) for label in labels])
    missing, total = np.isnan(given), float(np.nansum(given))
    if missing.any() and total >= 1:
        raise InputValueError(
            "No share is left for the classes that are not named.", where=where, found=total, expected="less than 1"
        )
    if not missing.any() and abs(total - 1) > _ALL:
        raise InputValueError("The shares of all classes do not add up to one.", where=where, found=total, expected=1)
    rest = np.where(missing, others, 0.0)
    filled = np.where(missing, rest / max(rest.sum(), np.finfo(float).tiny) * (1 - total), given)
    return np.asarray(filled / filled.sum())


def source_shares(served: Served, named: Mapping[str, float] | None) -> npt.NDArray[np.float64]:
    """Return the shares (K,) that the calibrator in service is right for.

    They are said, or they are those of the bundle's reference rows, as long as their calibrator is in service.

    Raises:
        InputValueError: The calibrator was fitted on traffic, whose shares nobody has noted, and none are said.
    """
    inner, rows, of_bundle = _inner(served.calibrator), served.bundle.reference.fit.logits, served.bundle.calibrator
    reference = np.maximum(of_bundle.predict_proba(rows).mean(axis=0, dtype=np.float64), np.finfo(float).tiny)
    if named is not None:
        return shares(named, served.labels, reference, "/source")
    if inner.to_dict() == of_bundle.to_dict():
        return np.asarray(reference / reference.sum())
    raise InputValueError(
        "The calibrator in service was fitted on traffic: say which shares of the classes that had.",
        where="/source",
        found="none",
        expected=f"shares of {', '.join(served.labels[:20])}",
        remedy="Read them off GET …/monitoring (`base_rate`), or roll back to the bundle's calibrator first.",
    )


def shifted(served: Served, source: npt.NDArray[np.float64]) -> PriorShift:
    """Return the calibrator in service, wrapped: not adapted yet, and right for the shares `source` (K,)."""
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
