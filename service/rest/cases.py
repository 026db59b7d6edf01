"""The review queue over HTTP."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Response

from candor.contract.cases import (
    Case,
    CaseAssign,
    CaseClaim,
    CaseDetail,
    CaseLabel,
    CaseOrder,
    CasePage,
    CaseRelease,
    CaseSkip,
    CaseState,
    ClaimRequest,
    Claims,
    LabelledCase,
)
from service.operations import cases
from service.rest.dependencies import Caller, ModelDep, RuntimeDep
from service.rest.responses import sent

_STORED: Final = r"^[^\x00]*$"


def list_cases(
    runtime: RuntimeDep,
    model: ModelDep,
    state: Annotated[CaseState | None, Query(description="Only cases in this state; default: all that wait.")] = None,
    order: Annotated[CaseOrder, Query(description="Order of the cases that wait.")] = "priority",
    policy: Annotated[
        str | None, Query(max_length=64, pattern=_STORED, description="Only cases of this policy.")
    ] = None,
    assignee: Annotated[
        str | None, Query(max_length=200, pattern=_STORED, description="Only cases reserved for this person.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[str | None, Query(max_length=100, description="`next` of the previous page.")] = None,
) -> Response:
    """List cases: predictions that wait for a person. Labelled and skipped ones come in the order of their end."""
    return sent(
        cases.list_cases(
            runtime,
            model,
            of_state=state,
            order=order,
            limit=limit,
            after=after,
            policy=policy,
            assignee=assignee,
        )
    )


def get_case(runtime: RuntimeDep, model: ModelDep, case: str) -> Response:
    """Return a case with its stored input, its probabilities, and the latest cases of its group."""
    return sent(cases.get_case(runtime, model, case))


def claim_next(runtime: RuntimeDep, model: ModelDep, by: Caller, body: ClaimRequest | None = None) -> Response:
    """Claim the next cases, those assigned to you first. No two callers get the same case while a claim lasts."""
    return sent(cases.claim_next(runtime, model, body or ClaimRequest(), by=by))


def claim_case(runtime: RuntimeDep, model: ModelDep, by: Caller, case: str, body: CaseClaim | None = None) -> Response:
    """Claim one case, or extend your claim."""
    return sent(cases.claim(runtime, model, case, body or CaseClaim(), by=by))


async def label_case(runtime: RuntimeDep, model: ModelDep, by: Caller, case: str, body: CaseLabel) -> Response:
    """Label a case. The label is durable when the answer comes, with the source "reviewer".

    Who labelled a case may label it again, to correct it.
    """
    return sent(await cases.label(runtime, model, case, body, by=by))


def skip_case(runtime: RuntimeDep, model: ModelDep, by: Caller, case: str, body: CaseSkip) -> Response:
    """End a case without a label."""
    return sent(cases.skip(runtime, model, case, body, by=by))


def release_case(
    runtime: RuntimeDep, model: ModelDep, by: Caller, case: str, body: CaseRelease | None = None
) -> Response:
    """Give your claim back, or reopen a case that you labelled or skipped. Its label stays until the next one."""
    return sent(cases.release(runtime, model, case, body or CaseRelease(), by=by))


def assign_case(runtime: RuntimeDep, model: ModelDep, by: Caller, case: str, body: CaseAssign) -> Response:
    """Reserve a waiting case for a person, or for anyone. The audit log keeps it."""
    return sent(cases.assign(runtime, model, case, body, by=by))


def add_to(router: APIRouter) -> None:
    """Mount the endpoints below a model."""
    one = "/cases/{case}"
    for path, method, handler, answer in (
        ("/cases", "GET", list_cases, CasePage),
        ("/cases/claim", "POST", claim_next, Claims),
        (one, "GET", get_case, CaseDetail),
        (f"{one}/claim", "POST", claim_case, Case),
        (f"{one}/label", "POST", label_case, LabelledCase),
        (f"{one}/skip", "POST", skip_case, Case),
        (f"{one}/release", "POST", release_case, Case),
        (f"{one}/assign", "POST", assign_case, Case),
    ):
        router.add_api_route(path, handler, methods=[method], tags=["cases"], response_model=answer)
