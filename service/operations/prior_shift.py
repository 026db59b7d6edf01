"""Adjust the active calibrator to new class frequencies, known or estimated, without labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from calibrators import CalibrationError
from calibrators import PriorShift as Calibrator
from candor.contract.certificates import PolicyCertificates
from candor.contract.changes import DecisionChanges
from candor.contract.prior_shift import (
    LEAST_ESTIMATED,
    ClassShare,
    PriorShift,
    PriorShiftEstimate,
    PriorShiftReport,
    PriorShiftRequest,
)
from service.decisions.calibrated import Calibrated
from service.decisions.certificates import certificates
from service.decisions.rows import Rows
from service.errors import InputValueError, TooFewLabelsError
from service.operations.principal import Principal
from service.operations.windows import recent_rows, window_of
from service.places import in_body
from service.recalibration.prior_shift import shares, shifted, source_shares
from service.recalibration.report import changed_decisions
from service.runtime import Runtime
from service.serving.model import Model

_ASSUMES = (
    "Only the class frequencies have changed; within each class, nothing has. And the calibrator was right for the "
    "frequencies `source`. No label tests either."
)


def shift(runtime: Runtime, model: Model, request: PriorShiftRequest, *, by: Principal) -> PriorShift:
    """Adjust the active calibrator to new class frequencies; keep the result as a proposal where the mode says so.

    Raises:
        InputValueError: The frequencies are missing, given twice, unknown or out of range, or the window is empty.
        TooFewLabelsError: There are too few predictions to estimate from.
        PolicyError: A policy must be certified or fail, and cannot be certified.
    """
    if (request.target is None) == (request.estimate is None):
        raise InputValueError(
            "Class frequencies are either known or estimated.",
            where=in_body("target"),
            found="both" if request.target is not None else "neither",
            expected="`target` or `estimate`",
        )
    served = model.served
    source = source_shares(served, request.source)
    wanted = request.estimate or PriorShiftEstimate()
    window = window_of(served, wanted.since, wanted.until, where=in_body("estimate"))
    rows = recent_rows(runtime, served, window, wanted.rows)
    calibrator = shifted(served, source)
    if request.target is not None:
        calibrator.adapt_to(shares(request.target, served.labels, source, in_body("target")))
    else:
        _estimate(calibrator, rows)
    report = _report(calibrator, served.labels, source, rows, estimated=request.estimate is not None)
    fields = {"model": model.name, "base": served.revision.id, **report.document}
    if request.mode == "dry_run":
        return PriorShift(revision=None, state="dry_run", **fields)
    revision = runtime.models.propose_prior_shift(
        model.name, served, calibrator, report.document, by=by.name, by_key=by.prefix
    )
    before = Calibrated.of(served.calibrator, served.labels, rows, served.policies)
    after = Calibrated.of(calibrator, served.labels, rows, revision.policies)
    changed = changed_decisions(before, after)
    policies = {key: certificates(solved) for key, solved in revision.policies.items()}
    return PriorShift(
        revision=revision.id,
        state="proposed",
        decisions=DecisionChanges.model_validate(changed),
        policies={key: PolicyCertificates.model_validate(document) for key, document in policies.items()},
        **fields,
    )


def _estimate(calibrator: Calibrator, rows: Rows) -> None:
    if len(rows) < LEAST_ESTIMATED:
        raise TooFewLabelsError(
            "Too few predictions to estimate class frequencies from.",
            where=in_body("estimate"),
            found=f"{len(rows)} predictions of the active model",
            expected=f"at least {LEAST_ESTIMATED}",
            remedy="Widen the window, or give the frequencies with `target`.",
        )
    try:
        calibrator.adapt(rows.logits, groups=rows.group)
    except CalibrationError as error:
        raise InputValueError(
            f"The class frequencies cannot be estimated: {error}", where=in_body("estimate")
        ) from error


def _report(
    calibrator: Calibrator,
    labels: tuple[str, ...],
    source: npt.NDArray[np.float64],
    rows: Rows,
    *,
    estimated: bool,
) -> PriorShiftReport:
    target, lower, upper = calibrator.target_priors_, calibrator.lower_priors_, calibrator.upper_priors_
    most = int(np.abs(np.log(np.maximum(target, 1e-12) / source)).argmax())
    how = f"estimated from {len(rows)} recent predictions" if estimated else "as given"
    return PriorShiftReport(
        priors={
            label: ClassShare(
                source=float(source[place]),
                target=float(target[place]),
                interval=(float(lower[place]), float(upper[place])) if estimated else None,
            )
            for place, label in enumerate(labels)
        },
        rows=len(rows),
        assumes=_ASSUMES,
        summary=f"{labels[most]!r} goes from {source[most]:.2%} to {target[most]:.2%} of the rows, {how}. "
        "Nothing was compared: no label was used.",
    )
