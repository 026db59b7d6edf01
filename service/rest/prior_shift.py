"""POST …/prior-shift: the calibrator in service for other shares of the classes, without a label."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from pydantic import AwareDatetime, ConfigDict, Field
from pydantic.config import JsonDict
from starlette.concurrency import run_in_threadpool

from calibrators import CalibrationError, PriorShift
from service.decisions.certificates import certificates
from service.decisions.solved import SolvedPolicy
from service.errors import InputValueError, TooFewLabelsError
from service.models import Model
from service.refit_report import Side, changed_decisions
from service.rest import answers
from service.rest.access import Principal
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.schema import Body, Text
from service.runtime import Runtime
from service.shifted import shares, shifted, source_shares
from service.state.recent import RecentRows, load_recent_rows, rows_at_once
from service.state.window import Window
from service.times import microseconds

MOST_ROWS = 200_000
LEAST_ROWS = 100
_ASSUMES = (
    "Only the shares of the classes have changed: among the rows of a class, nothing has. And the calibrator was right "
    "for the shares `source`. No label shows either."
)
_EXAMPLE: JsonDict = {"mode": "propose", "estimate": {"since": "2026-11-01T00:00:00Z"}}


class Estimate(Body):
    """Recent predictions, labelled or not, that the shares are estimated from."""

    since: AwareDatetime | None = Field(None, description="Predictions made at or after this time.")
    until: AwareDatetime | None = Field(None, description="Predictions made before this time.")
    rows: int = Field(
        20_000,
        ge=LEAST_ROWS,
        le=MOST_ROWS,
        description="Newest predictions that are taken, at most; fewer where their logits are above 64 MiB.",
    )


class PriorShiftBody(Body):
    """Which shares of the classes there are now: known, or estimated from recent predictions."""

    mode: Literal["dry_run", "propose"] = Field(
        "dry_run", description="`dry_run` keeps nothing and looks at no label; `propose` keeps a proposal."
    )
    target: dict[Text, float] | None = Field(
        None,
        min_length=1,
        description="Known shares by label, each in (0, 1); classes not named share the rest as they did before.",
    )
    estimate: Estimate | None = Field(None, description="In place of `target`: by maximum likelihood, without labels.")
    source: dict[Text, float] | None = Field(
        None,
        min_length=1,
        description="Shares that the calibrator in service is right for; left out: those of the bundle's reference "
        "rows, which are refused where it was fitted on traffic.",
    )
    model_config = ConfigDict(json_schema_extra={"example": _EXAMPLE})


async def prior_shift(
    runtime: RuntimeDep, model: ModelDep, by: Caller, body: PriorShiftBody, response: Response
) -> dict[str, Any]:
    """Carry the calibrator in service over to other shares of the classes, known or estimated.

    Reference rows cannot certify precision, selective risk or flag rate of what comes of it (recall and false-positive
    rate stand), no gate compares anything, and a person activates it, with a reason.
    """
    if (body.target is None) == (body.estimate is None):
        raise InputValueError(
            "The shares are either known or estimated.",
            where="/target",
            found="both" if body.target is not None else "neither",
            expected="`target` or `estimate`",
        )
    document = await run_in_threadpool(_shift, runtime, model, by, body)
    if body.mode == "propose":
        response.status_code = 201
        response.headers["location"] = f"/v1/models/{model.name}/revisions/{document['revision']}"
    return document


def _shift(runtime: Runtime, model: Model, by: Principal, body: PriorShiftBody) -> dict[str, Any]:
    served = model.served
    source = source_shares(served, body.source)
    wanted = body.estimate or Estimate()
    since, until = (None if time is None else microseconds(time) for time in (wanted.since, wanted.until))
    most = rows_at_once(len(served.labels), wanted.rows)
    window = Window(model.name, served.revision.model_digest, since, until)
    with runtime.database.connect() as connection:
        rows = load_recent_rows(connection, window, label_names=served.labels, at_most=most)
    calibrator = shifted(served, source)
    if body.target is not None:
        calibrator.adapt_to(shares(body.target, served.labels, source, "/target"))
    else:
        _estimate(calibrator, rows)
    report: dict[str, Any] = {
        "priors": {
            label: {
                "source": float(source[place]),
                "target": float(calibrator.target_priors_[place]),
                "interval": None
                if body.estimate is None
                else [float(calibrator.lower_priors_[place]), float(calibrator.upper_priors_[place])],
            }
            for place, label in enumerate(served.labels)
        },
        "rows": len(rows),
        "assumes": _ASSUMES,
        "summary": _summary(calibrator, served.labels, source, None if body.estimate is None else len(rows)),
    }
    if body.mode == "dry_run":
        return {"model": model.name, "base": served.revision.id, "revision": None, "state": "dry_run", **report}
    revision = runtime.models.propose_prior_shift(model.name, served, calibrator, report, by=by.name, by_key=by.prefix)
    policies = {key: SolvedPolicy.from_dict(policy) for key, policy in revision.policies.items()}
    before = Side.of(served.calibrator, served.policies, rows.logits)
    after = Side.of(calibrator, policies, rows.logits)
    return {
        "model": model.name,
        "base": served.revision.id,
        "revision": revision.id,
        "state": "proposed",
        **report,
        "decisions": changed_decisions(served.labels, before, after, rows.logits, rows.segment),
        "policies": {key: certificates(policy) for key, policy in policies.items()},
    }


def _estimate(calibrator: PriorShift, rows: RecentRows) -> None:
    if len(rows) < LEAST_ROWS:
        raise TooFewLabelsError(
            "There are too few predictions to estimate shares of classes from.",
            where="/estimate",
            found=f"{len(rows)} predictions of the model in service",
            expected=f"at least {LEAST_ROWS}",
            remedy="Widen the window, or say the shares with `target`.",
        )
    try:
        calibrator.adapt(rows.logits)
    except CalibrationError as error:
        raise InputValueError(f"The shares cannot be estimated: {error}", where="/estimate") from error


def _summary(calibrator: PriorShift, labels: tuple[str, ...], source: Any, rows: int | None) -> str:
    place = int(np.abs(np.log(np.maximum(calibrator.target_priors_, 1e-12) / source)).argmax())
    how = "as was said" if rows is None else f"as {rows} recent predictions suggest"
    target = calibrator.target_priors_[place]
    return (
        f"{labels[place]!r} goes from {source[place]:.2%} to {target:.2%} of the rows, {how}. "
        "Nothing was compared: no label was used."
    )


def add_to(router: APIRouter) -> None:
    """Mount the endpoint."""
    router.add_api_route(
        "/prior-shift",
        prior_shift,
        methods=["POST"],
        tags=["recalibration"],
        responses=answers.documented(answers.Shift, 200, 201),
    )
