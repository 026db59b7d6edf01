"""Start a recalibration: check what is asked for, and queue the job."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from calibrators import CALIBRATORS
from candor.contract.recalibration import FeedbackSource, ImplicitNegative, RecalibrationRequest
from service.decisions.multicalibrated import METHOD, Multicalibrated
from service.decisions.solved import SolvedPolicy
from service.errors import InputValueError, JobStateError, TooFewLabelsError, error_from_document
from service.operations.principal import Principal
from service.operations.windows import window_of
from service.others import FLUSH
from service.places import in_body
from service.recalibration.execution import limits_of
from service.recalibration.task import UNCHANGED, RefitRequest
from service.runtime import Runtime
from service.serving.loading import check_inputs_kept
from service.serving.model import Model
from service.serving.plane import Served
from service.state.database import now_us
from service.state.jobs import Job
from service.state.maturing import settled
from service.state.monitors import MonitorStore
from service.state.row_cells import columns_told
from service.state.window import Window
from service.times import iso


async def recalibrate(
    runtime: Runtime, model: Model, request: RecalibrationRequest, *, by: Principal, wait_s: float = 0.0
) -> Job:
    """Queue a recalibration of a model and return its job, finished where it ends within `wait_s`.

    Raises:
        InputValueError: The request cannot be fulfilled; the error says which part.
        ForbiddenError: It asks for an activation, and the caller lacks the scope `approve`.
        TooFewLabelsError: There are too few labelled rows.
        OverloadedError: Too many jobs wait already.
        CandorError: The job failed within `wait_s`, or was cancelled.
    """
    wanted = checked(runtime, model, request, by=by)
    await asyncio.to_thread(_check_enough, runtime, model, wanted)
    job = await runtime.jobs.submit(model.name, wanted, by=by.name, by_key=by.prefix)
    if wait_s:
        job = await runtime.jobs.wait(job.id, wait_s)
    if job.error is not None:
        raise error_from_document(job.error)
    if job.state == "cancelled":
        raise JobStateError(f"Job {job.id} was cancelled.", found="cancelled", expected="a result")
    return job


def checked(runtime: Runtime, model: Model, request: RecalibrationRequest, *, by: Principal) -> RefitRequest:
    """Return the request of a job, checked in all respects but the rows.

    Raises:
        InputValueError: The request cannot be fulfilled; the error says which part.
        ForbiddenError: It asks for an activation, and the caller lacks the scope `approve`.
    """
    known = sorted({*CALIBRATORS, METHOD, UNCHANGED})
    if request.calibrator is not None and request.calibrator not in known:
        raise InputValueError(
            f"Unknown calibrator {request.calibrator!r}.",
            where=in_body("calibrator"),
            found=request.calibrator,
            expected=known,
        )
    _check_columns(runtime, model.served, request)
    if request.mode == "activate":
        by.require("approve")
        if request.gate != "superior":
            raise InputValueError(
                "An unattended activation requires the gate `superior`.",
                where=in_body("gate"),
                found=request.gate,
                expected="superior",
                remedy='Use {"mode": "propose"} and let a person activate the proposal.',
            )
    _check_limits(runtime, request)
    source = request.source.feedback or FeedbackSource()
    window = window_of(model.served, source.since, source.until, where=in_body("source", "feedback"))
    if source.implicit_negative is not None:
        _check_silence(runtime, model, source, source.implicit_negative)
    return RefitRequest(
        mode=request.mode,
        calibrator=request.calibrator,
        columns=request.columns,
        since_us=window.since_us,
        until_us=window.until_us,
        unknown_propensity=source.unknown_propensity,
        gate=request.gate,
        implicit_negative=None if source.implicit_negative is None else source.implicit_negative.model_dump(),
        rescore=source.rescore,
        labelled_set=request.source.labelled_set,
        limits=request.limits.model_dump(exclude_none=True),
    )


def _check_columns(runtime: Runtime, served: Served, request: RecalibrationRequest) -> None:
    """Refuse columns for a calibrator that reads none, and a multicalibration that a model does not allow."""
    method = request.calibrator or served.calibrator.name
    if method != METHOD:
        if request.columns is not None:
            raise InputValueError(
                f"The calibrator {method!r} reads no columns.",
                where=in_body("columns"),
                found=list(request.columns),
                expected=f'none, or "calibrator": "{METHOD}"',
            )
        return
    check_inputs_kept(runtime.settings)
    known = columns_told(served.bundle)
    if len(served.labels) != 2 or not known:
        raise InputValueError(
            "The model does not allow multicalibration: it requires two labels, and rows whose columns can be told "
            "from one array of numbers.",
            where=in_body("calibrator"),
            found=f"{len(served.labels)} labels and an input of kind {served.input.kind}"
            + ("" if known else " without such columns"),
            expected="a table model of two labels",
            remedy="Use another calibrator; promises by segment need no columns.",
        )
    if request.columns is None:
        if not isinstance(served.calibrator, Multicalibrated):
            raise InputValueError("Multicalibration requires columns.", where=in_body("columns"), expected=list(known))
        return
    for at, name in enumerate(request.columns):
        if name not in known or name in request.columns[:at]:
            raise InputValueError(
                "Unknown column." if name not in known else "Duplicate column.",
                where=in_body("columns", at),
                found=name[:200],
                expected=list(known),
            )


def _check_limits(runtime: Runtime, request: RecalibrationRequest) -> None:
    allowed = limits_of(runtime.settings)
    for name, wanted in request.limits.model_dump(exclude_none=True).items():
        most = getattr(allowed, name)
        if most is not None and wanted > most:
            raise InputValueError(
                "A request can only tighten the operator's limits.",
                where=in_body("limits", name),
                found=wanted,
                expected=f"at most {most:g}, the value of CANDOR_LIMIT_{name.upper()}",
            )


def _actions(policies: Iterable[dict[str, Any]]) -> set[str]:
    """Return the actions of solved policies."""
    return {action for document in policies for action in SolvedPolicy.from_dict(document).actions}


def _check_silence(runtime: Runtime, model: Model, source: FeedbackSource, silence: ImplicitNegative) -> None:
    """Refuse a silence beside labels that were not sought, or one with an unknown label or action."""
    if source.unknown_propensity == "fit":
        raise InputValueError(
            "Labels that were not sought and silence as a label cannot both enter a fit.",
            where=in_body("source", "feedback", "unknown_propensity"),
            found="fit",
            expected="exclude",
            remedy="With `implicit_negative`, the fit already has what a source says about mature rows; before that, "
            "the source has reported positives only.",
        )
    labels = model.served.labels
    known = _actions(solved.to_dict() for solved in model.served.policies.values())
    if not known.issuperset(silence.actions):  # then those of earlier policies, whose rows may be mature by now
        made = runtime.revisions.made(model.name)
        known |= _actions(document for one in made for document in one.policies.values())
    if unknown := sorted(set(silence.actions) - known):
        raise InputValueError(
            f"Unknown action {unknown[0][:200]!r}.",
            where=in_body("source", "feedback", "implicit_negative", "actions"),
            found=unknown[0],
            expected=sorted(known),
            remedy="Name actions of the model's policies; no row has any other.",
        )
    if silence.label not in labels:
        raise InputValueError(
            f"Unknown label {silence.label[:200]!r}.",
            where=in_body("source", "feedback", "implicit_negative", "label"),
            found=silence.label,
            expected=list(labels),
        )


def _check_enough(runtime: Runtime, model: Model, request: RefitRequest) -> None:
    """Refuse what cannot succeed before a process is started for it."""
    wanted = runtime.settings.refit_min_rows
    if request.labelled_set is not None:
        rows = runtime.labelled_sets.get(model.name, request.labelled_set).rows
        if rows < wanted:
            raise TooFewLabelsError(
                "The labelled set has too few rows for a recalibration.",
                where=in_body("source", "labelled_set"),
                found=f"{rows} rows",
                expected=f"at least {wanted}",
                remedy="Upload more rows.",
            )
        return
    since = MonitorStore(runtime.database).window_start(model.name, request.since_us, by_rule=request.start_by_rule)
    window = Window(model.name, model.served.revision.model_digest, since, request.until_us)
    spec = model.served.specification if request.rescore else None
    with runtime.database.connect() as connection:
        window = settled(connection, window, now_us(), model.served.labels)
    runtime.others.ask(FLUSH)  # predictions that were answered before the request belong to its window
    if any(one.silence is not None for one in window.arising):
        return  # silence may label enough
    found = runtime.feedback.count_labelled(window, at_most=wanted, input_spec=spec)
    if found < wanted:
        raise TooFewLabelsError(
            "Too little labelled feedback for a recalibration.",
            where=in_body("source", "feedback"),
            found=f"{found} labelled predictions of the active model"
            + ("" if since is None else f" since {iso(since)}")
            + (", without those younger than `labels.mature_in` of their policy" if window.arising else ""),
            expected=f"at least {wanted}",
            remedy="Send labels to /feedback, or widen the window.",
        )
