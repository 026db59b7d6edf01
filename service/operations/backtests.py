"""Backtests: what a policy would have done on later traffic with thresholds from earlier traffic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bundle.split import LAST_FIT_GROUP
from candor.contract.backtests import Backtest, BacktestRequest
from candor.contract.conditions import REVIEW
from candor.contract.policies import Policy
from service.decisions.backtest import (
    FEWEST_GROUPS,
    Judged,
    days_of,
    lower_thresholds,
    outcome,
    seen_by_people,
)
from service.decisions.calibrated import Calibrated
from service.decisions.certify import solve
from service.decisions.decide import decide
from service.decisions.policy import check_labels
from service.decisions.rows import NO_LABEL, Rows, ScoredRows
from service.decisions.solved import SolvedPolicy
from service.operations.policies import in_force, inside, parsed
from service.operations.windows import window_of
from service.places import in_body
from service.recalibration.rows import fit_weights
from service.runtime import Runtime
from service.serving.model import Model
from service.state.database import now_us
from service.state.deciders import fitted_at, last_actions
from service.state.maturing import settled
from service.state.recent import load_recent_fit_rows, rows_at_once
from service.times import iso

_FIT_SHARE = LAST_FIT_GROUP / 2**64  # fit rows have their part of a queue's capacity


def backtest_policy(runtime: Runtime, model: Model, policy: str, request: BacktestRequest) -> Backtest:
    """Solve a policy on the earlier half of logged fit rows, and judge it on the later half.

    Nothing is kept or certified. No look is used: no certificate and no gate uses fit rows.

    Raises:
        InputValueError: The window is empty, or the document has another id.
        UnknownPolicyError: The active revision has no such policy, and the request has no document.
        PolicyError: The document cannot be used.
    """
    served = model.served
    wanted = _policy(model, policy, request)
    window = window_of(served, request.since, request.until, where=in_body("since"))
    most = rows_at_once(len(served.labels), request.rows)
    against = request.against or policy
    with runtime.database.connect() as connection:
        window = settled(connection, window, now_us(), served.labels)
        rows, origin = load_recent_fit_rows(connection, window, label_names=served.labels, at_most=most)
        last_of = last_actions(connection, window, against, set(origin.tolist()))
        fitted = fitted_at(connection, served.revision.model, served.revision.id)
    last = np.array([last_of.get(one) for one in origin.tolist()], np.object_)
    split, warnings = _split(rows, fitted)
    solving = rows.take(rows.predicted_at < split)
    if late := int((solving.known() & (solving.labelled_at >= split)).sum()):
        warnings.append(f"{late} labels of earlier rows came after {iso(split)}, too late to solve the thresholds.")
    solving = _as_of(solving, split)
    later = (rows.predicted_at >= split) & ~np.isin(rows.group, solving.group)
    seen = later & (last != None)  # noqa: E711
    if seen.any():
        if others := int(later.sum() - seen.sum()):
            warnings.append(f"{others} later rows are not judged, because {against} did not decide them.")
        later = seen
    judging = rows.take(later)
    earlier = Calibrated.of(served.calibrator, served.labels, solving).scored(wanted)
    scored = Calibrated.of(served.calibrator, served.labels, judging).scored(wanted)
    day = runtime.models.traffic.rows_per_day(model.name, now_us()) if wanted.lacks_rows_per_day else None
    solved = _solved(wanted, earlier, int.from_bytes(runtime.database.secret[:8], "little"), day)
    judged, costs = Judged(scored, wanted.amount_when_missing or 0.0), wanted.costs
    decided = decide(solved, scored.probability, scored.score, scored.segment, scored.amount)
    then = np.array(solved.actions, dtype=np.object_)[decided]
    span = rows.predicted_at[rows.predicted_at >= split]  # of which the judged rows have their part
    days = days_of(span) * _FIT_SHARE * len(judging) / max(1, len(span))
    seen_then = seen_by_people(wanted, judged, then, days)
    if seen_then is not None and seen_then.min(initial=1.0) < 1:
        warnings.append(
            f"People would see about {seen_then[then == REVIEW].sum():.0f} of the {(then == REVIEW).sum()} judged rows "
            "sent to review (max_per_day): the others count as left."
        )
    return Backtest(
        model=model.name,
        policy=wanted.id,
        window=rows.window(),
        judged_from=iso(split) if len(rows) else None,
        solving=len(solving),
        judged=len(scored),
        labelled=int(judged.speaks.sum()),
        awaited=int((judged.identified & scored.was_sought() & ~scored.known()).sum()),
        unidentified=int((~judged.identified).sum()),
        without_amount=int(np.isnan(scored.amount).sum()),
        effective=judged.effective,
        capped=judged.capped,
        review_all=solved.review_all and not any(part.certified for part in solved.segments.values()),
        warnings=tuple(warnings),
        thresholds={}
        if solved.segments
        else {
            band.action: None if band.threshold is None else band.threshold.probability for band in solved.bands[:-1]
        },
        then=outcome(judged, then, wanted.bands[-1].action, costs, seen_then),
        # The propensity of a row that was sent to review is the probability with which people saw it.
        now=outcome(
            judged, np.array(judging.action, dtype=np.object_), last[later], costs, np.nan_to_num(scored.propensity)
        )
        if seen.any()
        else None,
        lower=lower_thresholds(judged),
    )


def _split(rows: Rows, fitted: int | None) -> tuple[int, list[str]]:
    """Return the time from which rows are judged: after the calibrator's fit, if enough labels have come since."""
    if not len(rows):
        return 0, []
    middle = int(rows.predicted_at[len(rows) // 2])
    if fitted is None or fitted <= middle:
        return middle, []
    since = rows.known() & (rows.predicted_at >= fitted)
    if len(np.unique(rows.group[since])) >= FEWEST_GROUPS:
        return fitted, []
    return middle, [
        f"The calibrator was fitted at {iso(fitted)}, and may have used labels of the judged rows before that time: "
        "the estimates may be too good."
    ]


def _as_of(rows: Rows, at: int) -> Rows:
    """Return rows with the labels that had come at a time."""
    came = rows.labelled_at < at
    return replace(
        rows, label=np.where(came, rows.label, NO_LABEL), labelled=rows.known() & came, sought=rows.was_sought()
    )


def _policy(model: Model, policy: str, request: BacktestRequest) -> Policy:
    if request.document is None:
        return in_force(model.served, policy).policy
    where = in_body("document")
    with inside(where):
        wanted = parsed(policy, request.document, where)
        check_labels(wanted, model.served.labels)
    return wanted


def _solved(wanted: Policy, earlier: ScoredRows, seed: int, rows_per_day: int | None) -> SolvedPolicy:
    """Solve a policy as a first look would: half of the groups choose thresholds, the others test them."""
    chooses = (earlier.group >> 40) & 1 == 0
    fails = wanted.on_uncertifiable == "fail"
    fit = earlier.take(chooses)
    return solve(
        wanted.model_copy(update={"on_uncertifiable": "review_all"}) if fails else wanted,
        version=1,
        fit=replace(fit, weight=fit_weights(fit.propensity)),
        certify=earlier.take(~chooses),
        look=1,
        basis="traffic",
        seed=seed,
        rows_per_day=rows_per_day,
    )
