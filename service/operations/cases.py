"""The review queue: list, claim, label, skip, release and assign cases."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bundle.images import encode_png
from candor.contract.cases import (
    Case,
    CaseAssign,
    CaseClaim,
    CaseCounts,
    CaseDetail,
    CaseLabel,
    CaseOrder,
    CasePage,
    CaseRelease,
    CaseSkip,
    CaseState,
    ClaimRequest,
    Claims,
    EarlierCase,
    LabelledCase,
    PastPrediction,
    Reasons,
)
from candor.contract.policies import TOP
from service.cases.contents import input_of, logits_of, shown
from service.cases.described import described, predicted_by
from service.cases.reasons import reasons_of
from service.decisions.multicalibrated import Multicalibrated, of_two
from service.decisions.revision import Revision
from service.errors import ForbiddenError, InputValueError, UnknownLabelError
from service.operations import feedback
from service.operations.principal import Principal
from service.places import in_body
from service.runtime import Runtime
from service.serving.model import Model
from service.serving.plane import Served
from service.state import cases as state
from service.state.database import now_us
from service.state.feedback import FeedbackItem
from service.state.history import Past, history
from service.state.keys import KeyStore
from service.times import iso

_EARLIER: Final = 20
_HISTORY: Final = 50
_SECOND: Final = 1_000_000
_LARGEST: Final = 2**63 - 1
_AFTER: Final = re.compile(r"([^_]{1,40})_(\w{26})")


def list_cases(
    runtime: Runtime,
    model: Model,
    *,
    of_state: CaseState | None = None,
    order: CaseOrder = "priority",
    limit: int = 50,
    after: str | None = None,
    policy: str | None = None,
    assignee: str | None = None,
) -> CasePage:
    """Return a page of cases: without a state, those that wait; done ones by the time of their end, oldest first.

    Raises:
        InputValueError: `after` is not from a page.
    """
    page = runtime.cases.page(
        model.name,
        state=of_state,
        order=order,
        limit=limit + 1,
        after=None if after is None else _place(after, exact=state.by_time(of_state, order)),
        policy=policy,
        assignee=assignee,
    )
    follows = state.place_of(page[limit - 1], of_state, order) if len(page) > limit else None
    return CasePage(
        items=tuple(Case(**described(model.name, model.loaded, one)) for one in page[:limit]),
        next=None if follows is None else f"{follows[0]!r}_{follows[1]}",
        counts=counts_of(runtime, model),
    )


def counts_of(runtime: Runtime, model: Model) -> CaseCounts:
    """Return how many cases of a model wait, read a few seconds ago at most."""
    counts = runtime.case_counts.of(model.name)
    oldest_s = None if counts.oldest_at is None else max(0.0, (now_us() - counts.oldest_at) / _SECOND)
    return CaseCounts(waiting=counts.waiting, claimed=counts.claimed, overdue=counts.overdue, oldest_s=oldest_s)


def get_case(runtime: Runtime, model: Model, case: str) -> CaseDetail:
    """Return a case with its input, probabilities, reasons, and the latest cases of its group.

    Raises:
        UnknownCaseError: The model has no such case.
    """
    found = runtime.cases.get(model.name, case)
    served, labels = predicted_by(model.loaded, found), _labels(runtime, model, found)
    example = None if served is None else input_of(runtime.database, served, case)
    fields = described(model.name, model.loaded, found)
    probabilities = None
    if labels is not None and found.revision is not None:
        logits = logits_of(runtime.database, len(labels), case)
        if logits is not None:
            revision = runtime.revisions.get(model.name, found.revision)
            each = (
                of_two(np.array([found.predicted], np.int64), np.array([found.confidence], np.float64))
                if isinstance(revision.calibrator, Multicalibrated)
                else revision.calibrator.predict_proba(logits[None])
            )
            probabilities = dict(zip(labels, each[0].tolist(), strict=True))
            if found.reasons is None and served is not None and example is not None:
                fields["reasons"] = _reasons(served, revision, found.policy, example, logits)
    if labels is not None and found.predicted is not None:
        fields["predicted"] = labels[found.predicted]
    now = now_us()
    return CaseDetail(
        **fields,
        labels=labels,
        probabilities=probabilities,
        inputs=None if served is None or example is None else shown(served, example),
        earlier=tuple(
            EarlierCase(
                id=one.id,
                created_at=iso(one.created_at),
                state=one.state(now),
                probability=one.probability,
                label=one.label,
            )
            for one in runtime.cases.earlier(model.name, found, _EARLIER)
        ),
        history=_history(runtime, model, found),
    )


def _history(runtime: Runtime, model: Model, found: state.Case) -> tuple[PastPrediction, ...]:
    """Return the latest other predictions of a case's group."""
    now = now_us()
    past = history(runtime.database, model.name, found.cluster, without=found.id, limit=_HISTORY)
    scores = {revision: _scoring(runtime, model, revision, found.policy) for revision in {one.revision for one in past}}
    return tuple(
        PastPrediction(
            id=one.id,
            created_at=iso(one.created_at),
            reference=one.reference,
            action=one.action,
            probability=scores[one.revision](one),
            amount=one.amount,
            label=one.label,
            case=one.state(now),
        )
        for one in past
    )


def _scoring(runtime: Runtime, model: Model, revision: str, policy: str) -> Callable[[Past], float | None]:
    """Return what computes the probability of a policy's positive class as a revision gave it."""
    by = runtime.revisions.get(model.name, revision)
    solved, labels = by.policies.get(policy), runtime.models.labels_of(by)
    if solved is not None and solved.policy.positive == TOP:
        return lambda past: 1.0 - past.confidence
    unknown = isinstance(by.calibrator, Multicalibrated)  # of earlier rows, without their columns
    if unknown or solved is None or labels is None or solved.policy.positive not in labels:
        return lambda _: None
    column, calibrator = labels.index(solved.policy.positive), by.calibrator
    return lambda past: float(calibrator.predict_proba(np.frombuffer(past.logits, "<f4")[None])[0, column])


def _reasons(
    served: Served, revision: Revision, policy: str, example: NDArray[Any], logits: NDArray[np.float32]
) -> Reasons | None:
    """Return why a row got its probability, as the bundle's trees tell; None without trees or the policy."""
    solved = revision.policies.get(policy)
    if solved is None or isinstance(revision.calibrator, Multicalibrated):  # whose probability is not the trees' alone
        return None
    return reasons_of(served, revision.calibrator, solved.policy.positive, example, logits)


def _kept(runtime: Runtime, model: Model, found: state.Case) -> dict[str, Any] | None:
    """Return the reasons of a case as a document, to keep them with its end."""
    if found.reasons is not None:
        return found.reasons
    served = predicted_by(model.loaded, found)
    if served is None or served.bundle.trees is None or found.revision is None:
        return None
    example = input_of(runtime.database, served, found.id)
    logits = logits_of(runtime.database, len(served.labels), found.id)
    if example is None or logits is None:
        return None
    reasons = _reasons(served, runtime.revisions.get(model.name, found.revision), found.policy, example, logits)
    return None if reasons is None else reasons.document


def _labels(runtime: Runtime, model: Model, found: state.Case) -> tuple[str, ...] | None:
    """Return the labels of the model that predicted a case, active or not; None if its bundle is gone."""
    served = predicted_by(model.loaded, found)
    if served is not None:
        return served.labels
    if found.revision is None:
        return None
    labels = runtime.models.labels_of(runtime.revisions.get(model.name, found.revision))
    return None if labels is None else tuple(labels)


def picture_of(runtime: Runtime, model: Model, case: str) -> bytes | None:
    """Return the stored image of a case as PNG; None without one.

    Raises:
        UnknownCaseError: The model has no such case.
    """
    served = predicted_by(model.loaded, runtime.cases.get(model.name, case))
    if served is None or served.input.kind != "image":
        return None
    example = input_of(runtime.database, served, case)
    return None if example is None else encode_png(example)


def claim_next(runtime: Runtime, model: Model, request: ClaimRequest, *, by: Principal) -> Claims:
    """Claim the next cases: those assigned to the caller first. Fewer than wanted come when no others are free."""
    lease_us, count = request.lease_s * _SECOND, request.count
    claimed = runtime.cases.claim_next(
        model.name, by.name, count=count, lease_us=lease_us, policy=request.policy, order=request.order
    )
    return Claims(items=tuple(Case(**described(model.name, model.loaded, one)) for one in claimed))


def claim(runtime: Runtime, model: Model, case: str, request: CaseClaim, *, by: Principal) -> Case:
    """Claim one case, or extend the caller's claim.

    Raises:
        UnknownCaseError: The model has no such case.
        CaseStateError: Someone else has it, or it is done.
    """
    claimed = runtime.cases.claim(model.name, case, by.name, lease_us=request.lease_s * _SECOND)
    return Case(**described(model.name, model.loaded, claimed))


async def label(
    runtime: Runtime, model: Model, case: str, request: CaseLabel, *, by: Principal, again: bool = True
) -> LabelledCase:
    """End a case with its true label, durably and in one transaction with it; with `again`, also to correct one's own.

    The label goes the way of all feedback, with the source "reviewer".

    Raises:
        UnknownCaseError: The model has no such case.
        UnknownLabelError: The model that predicted it has no such label, or its bundle is gone.
        CaseStateError: Someone else has it or ended it, or the claim is not the latest.
        ForbiddenError: The caller's key is bound to another source.
    """
    if by.source not in (None, state.REVIEWER):
        raise ForbiddenError(
            "The API key may send labels of its own source only.", found=state.REVIEWER, expected=by.source
        )
    predicted = await asyncio.to_thread(runtime.cases.get, model.name, case)
    labels = await asyncio.to_thread(_labels, runtime, model, predicted)
    reasons = await asyncio.to_thread(_kept, runtime, model, predicted)
    if labels is None:
        raise UnknownLabelError(
            "The bundle that predicted this case is gone, so its labels are not known.",
            where=in_body("label"),
            found=request.label[:200],
            remedy="Restore the bundle's folder, or skip the case.",
        )
    if request.label not in labels:
        raise UnknownLabelError(
            "The model that predicted this case has no such label.",
            where=in_body("label"),
            found=request.label[:200],
            expected=list(labels),
        )
    receipt = await feedback.store(
        runtime,
        model.name,
        [FeedbackItem(case, None, request.label, state.REVIEWER)],
        by=by,
        within=lambda connection: runtime.cases.label_within(
            connection,
            model.name,
            case,
            by.name,
            label=request.label,
            lease=request.lease,
            reasons=reasons,
            again=again,
        ),
    )
    found = await asyncio.to_thread(runtime.cases.get, model.name, case)
    return LabelledCase(**described(model.name, model.loaded, found), feedback=receipt.items[0].status)


def skip(runtime: Runtime, model: Model, case: str, request: CaseSkip, *, by: Principal, again: bool = True) -> Case:
    """End a case without a label, and keep the reason; with `again`, also to change the reason of one's own.

    Raises:
        UnknownCaseError: The model has no such case.
        CaseStateError: Someone else has it, it is labelled or was before it was reopened, or the claim is not
            the latest.
    """
    reasons = _kept(runtime, model, runtime.cases.get(model.name, case))
    skipped = runtime.cases.skip(
        model.name, case, by.name, reason=request.reason, lease=request.lease, reasons=reasons, again=again
    )
    return Case(**described(model.name, model.loaded, skipped))


def release(
    runtime: Runtime, model: Model, case: str, request: CaseRelease, *, by: Principal, again: bool = True
) -> Case:
    """Give a claim back, or with `again` reopen a case that the caller ended. Its label stays until the next one.

    Raises:
        UnknownCaseError: The model has no such case.
        CaseStateError: The caller neither holds nor ended it, or the claim is not the latest.
    """
    released = runtime.cases.release(model.name, case, by.name, lease=request.lease, again=again)
    return Case(**described(model.name, model.loaded, released))


def assign(runtime: Runtime, model: Model, case: str, request: CaseAssign, *, by: Principal) -> Case:
    """Reserve a waiting case for a person, or for anyone.

    Raises:
        UnknownCaseError: The model has no such case.
        CaseStateError: It is done.
        InputValueError: Only keys give names here, and no valid key has this one.
    """
    keys = KeyStore(runtime.database).list()
    if request.to is not None and keys and runtime.settings.oidc_issuer is None:  # a provider does not list its people
        now = now_us()
        if not any(key.name == request.to and key.valid_at(now) for key in keys):
            raise InputValueError(
                f"No valid API key has the name {request.to!r}.",
                where=in_body("to"),
                found=request.to,
                expected="the name of a valid API key, or null for anyone",
                remedy="Correct the name. An administrator lists the keys with `candor keys list`.",
            )
    assigned = runtime.cases.assign(model.name, case, request.to, by=by.name)
    return Case(**described(model.name, model.loaded, assigned))


def _place(after: str, *, exact: bool) -> tuple[float, str]:
    """Return the place and id in `after`; an exact place is an INT64, as its column is, so that its index is used."""
    match = _AFTER.fullmatch(after)
    try:
        if match is not None and exact and -_LARGEST <= (time := int(match[1])) <= _LARGEST:
            return time, match[2]
        if match is not None and not exact and math.isfinite(place := float(match[1])):
            return place, match[2]
    except ValueError:
        pass
    raise InputValueError(
        "`after` is not from a page of cases.", where="after", found=after[:100], expected="`next` of a page"
    )
