"""The review queue: a page of what waits, and one of each case, which needs no mouse."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from candor.contract.cases import (
    Case,
    CaseAssign,
    CaseClaim,
    CaseDetail,
    CaseLabel,
    CaseOrder,
    CaseRelease,
    CaseSkip,
    CaseState,
    ClaimRequest,
)
from service.dashboard import forms
from service.dashboard.pages import page
from service.errors import CaseStateError, InputValueError, NotFoundError
from service.operations import cases as operation
from service.operations.principal import Principal
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.runtime import Runtime
from service.serving.model import Model
from service.state.database import now_us

STATES: Final[dict[str, CaseState | None]] = {
    "waiting": None,
    "open": "open",
    "claimed": "claimed",
    "labelled": "labelled",
    "skipped": "skipped",
}
ORDERS: Final[tuple[CaseOrder, ...]] = ("priority", "due")
_PAGE = 50
_KEYS = 9
_MOST_SHOWN = 4_000


def queue(
    request: Request,
    runtime: RuntimeDep,
    model: ModelDep,
    by: Caller,
    state: str = "waiting",
    order: str = "priority",
    after: str | None = None,
    done: str | None = None,
) -> Response:
    """Show the cases of a model; `done` is the case that was just ended."""
    by.require("review")
    shown = operation.list_cases(
        runtime, model, of_state=_state(state), order=_order(order), limit=_PAGE, after=after or None
    )
    return page(
        request.scope,
        "cases.html",
        model=model.name,
        found=shown,
        state=state,
        states=list(STATES),
        order=order,
        orders=ORDERS,
        undo=_undo(runtime, model, done, by),
        emptied=done is not None,
    )


def case_page(
    request: Request,
    runtime: RuntimeDep,
    model: ModelDep,
    by: Caller,
    case: str,
    order: str = "priority",
    done: str | None = None,
) -> Response:
    """Show a case: what was predicted, from what, and the latest cases of its group."""
    by.require("review")
    found = operation.get_case(runtime, model, case)
    ended_by_me = found.done_by == by.name
    picture = operation.picture_of(runtime, model, case) is not None
    columns = None if picture else _columns(found.inputs)
    return page(
        request.scope,
        "case.html",
        model=model.name,
        case=found,
        order=_order(order),
        mine=found.claimed_by == by.name if found.claimed_by else found.assignee in (None, by.name),
        ended_by_me=ended_by_me,
        choices=_choices(found),
        others=_others(found),
        picture=picture,
        columns=columns,
        values=dict(columns or ()),
        labelled=_labelled(found),
        undo=found if ended_by_me else _undo(runtime, model, done, by),
        keyed=_KEYS,
    )


def _labelled(found: CaseDetail) -> str:
    """Return how many rows of the history have which label, such as "2 fraud, 5 honest"."""
    labels = Counter(past.label for past in found.history if past.label is not None)
    return ", ".join(f"{count} {label}" for label, count in labels.most_common(3))


def image(runtime: RuntimeDep, model: ModelDep, by: Caller, case: str) -> Response:
    """Return the stored image of a case as PNG."""
    by.require("review")
    content = operation.picture_of(runtime, model, case)
    if content is None:
        raise NotFoundError("There is no stored image of this case.", remedy="Keep inputs: CANDOR_KEEP_INPUTS=sought.")
    return Response(content, media_type="image/png", headers={"cache-control": "no-store"})


async def take_next(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller) -> Response:
    """Claim the next case and show it; a case that the form names is given back."""
    by.require("review")
    fields = await forms.read(request)
    return await _next(runtime, model, by, fields, leave=fields.get("leave"))


async def label(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, case: str) -> Response:
    """Label a case and show the next one; `again`, in the form of a case that has ended, corrects it and shows it."""
    by.require("review")
    fields = await forms.read(request)
    wanted = forms.body(CaseLabel, label=fields.get("label", ""), lease=_lease(fields))
    again = "again" in fields
    await operation.label(runtime, model, case, wanted, by=by, again=again)
    if again:
        return forms.see(_address(model, case, fields))
    return await _next(runtime, model, by, fields, done=case)


async def skip(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, case: str) -> Response:
    """Skip a case and show the next one."""
    by.require("review")
    fields = await forms.read(request)
    wanted = forms.body(CaseSkip, reason=fields.get("reason", ""), lease=_lease(fields))
    await run_in_threadpool(operation.skip, runtime, model, case, wanted, by=by, again=False)
    return await _next(runtime, model, by, fields, done=case)


async def undo(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, case: str) -> Response:
    """Reopen a case that the caller ended, claim it, and show it; a case that the form names is given back."""
    by.require("review")
    fields = await forms.read(request)

    def reopen() -> None:
        operation.release(runtime, model, case, CaseRelease(), by=by)
        with suppress(CaseStateError):  # it may be reserved for another person
            operation.claim(runtime, model, case, CaseClaim(), by=by)
        _leave(runtime, model, fields.get("leave"), by)

    await run_in_threadpool(reopen)
    return forms.see(_address(model, case, fields))


async def claim(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, case: str) -> Response:
    """Claim a case and show it."""
    by.require("review")
    fields = await forms.read(request)
    await run_in_threadpool(operation.claim, runtime, model, case, CaseClaim(), by=by)
    return forms.see(_address(model, case, fields))


async def release(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, case: str) -> Response:
    """Give a claim back and show the queue."""
    by.require("review")
    fields = await forms.read(request)
    wanted = forms.body(CaseRelease, lease=_lease(fields))
    await run_in_threadpool(operation.release, runtime, model, case, wanted, by=by, again=False)
    return forms.see(_address(model, None, fields))


async def assign(request: Request, runtime: RuntimeDep, model: ModelDep, by: Caller, case: str) -> Response:
    """Reserve a case for the person that the form names, or for anyone, and show it."""
    by.require("review")
    fields = await forms.read(request)
    wanted = forms.body(CaseAssign, to=fields.get("to"))
    await run_in_threadpool(operation.assign, runtime, model, case, wanted, by=by)
    return forms.see(_address(model, case, fields))


async def _next(
    runtime: Runtime,
    model: Model,
    by: Principal,
    fields: dict[str, str],
    *,
    done: str | None = None,
    leave: str | None = None,
) -> Response:
    """Claim and show the next case; without one, show the queue."""

    def take() -> Case | None:
        wanted = ClaimRequest(count=1, order=_order(fields.get("order", "priority")))
        claimed = operation.claim_next(runtime, model, wanted, by=by).items
        _leave(runtime, model, leave, by)  # afterwards: it would come first again
        return claimed[0] if claimed else None

    found = await run_in_threadpool(take)
    return forms.see(_address(model, None if found is None else found.id, fields, done=done or ""))


def _leave(runtime: Runtime, model: Model, case: str | None, by: Principal) -> None:
    """Give a case back, if the caller still has it; a case that is done stays so."""
    if case is None:
        return
    with suppress(CaseStateError, NotFoundError):
        if runtime.cases.get(model.name, case).state(now_us()) == "claimed":
            operation.release(runtime, model, case, CaseRelease(), by=by)


def _undo(runtime: Runtime, model: Model, done: str | None, by: Principal) -> CaseDetail | None:
    """Return the case that was just ended, if the caller may reopen it."""
    if not done:
        return None
    with suppress(NotFoundError):
        found = operation.get_case(runtime, model, done)
        return found if found.done_by == by.name and found.state in ("labelled", "skipped") else None
    return None


def _choices(case: CaseDetail) -> list[tuple[str, float | None]]:
    """Return the labels that have a button: all in the model's order if they are few, else the most probable."""
    labels = list(case.labels or ())
    known = case.probabilities or {}
    if len(labels) > _KEYS:
        labels = sorted(labels, key=lambda name: -known.get(name, 0.0))[:_KEYS]
    return [(name, known.get(name)) for name in labels]


def _others(case: CaseDetail) -> list[str]:
    """Return the labels without a button."""
    shown = {name for name, _ in _choices(case)}
    return sorted(name for name in case.labels or () if name not in shown)


def _columns(inputs: Any) -> list[tuple[str, str]] | None:
    """Return the values of an input by name; None if it is not stored."""
    if inputs is None:
        return None
    named = inputs if isinstance(inputs, dict) else {"text" if isinstance(inputs, str) else "input": inputs}
    return [(name, _said(value)) for name, value in named.items()]


def _said(value: Any) -> str:
    if value is None:
        return "—"
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return said if len(said) <= _MOST_SHOWN else f"{said[:_MOST_SHOWN]} …"


def _lease(fields: dict[str, str]) -> int | None:
    lease = fields.get("lease", "0")
    return int(lease) or None if lease.isascii() and lease.isdigit() and len(lease) < 19 else None


def _state(state: str) -> CaseState | None:
    if state not in STATES:
        raise InputValueError("Unknown state.", where="state", found=state[:100], expected=list(STATES))
    return STATES[state]


def _order(order: str) -> CaseOrder:
    for known in ORDERS:
        if order == known:
            return known
    raise InputValueError("Unknown order.", where="order", found=order[:100], expected=list(ORDERS))


def _address(model: Model, case: str | None, fields: dict[str, str], *, done: str | None = None) -> str:
    """Return the address of a case, or of the queue, which keeps the order."""
    path = f"/dashboard/models/{forms.part(model.name)}/cases" + ("" if case is None else f"/{forms.part(case)}")
    query = [f"order={_order(fields.get('order', 'priority'))}"] + (
        [] if done is None else [f"done={forms.part(done)}"]
    )
    return f"{path}?{'&'.join(query)}"


def add_to(router: APIRouter) -> None:
    """Mount the pages and forms."""
    router.add_api_route("/cases", queue, methods=["GET"])
    router.add_api_route("/cases/next", take_next, methods=["POST"])
    router.add_api_route("/cases/{case}", case_page, methods=["GET"])
    router.add_api_route("/cases/{case}/image", image, methods=["GET"])
    for form in (label, skip, undo, claim, release, assign):
        router.add_api_route(f"/cases/{{case}}/{form.__name__}", form, methods=["POST"])
