"""The audit log: who did what, when."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from service.dashboard.pages import page
from service.rest.dependencies import Caller, RuntimeDep
from service.state import audit
from service.times import iso

_PAGE = 50
BeforeQuery = Annotated[int | None, Query(ge=0, lt=2**63)]  # what an id of the database can be


async def audit_page(
    request: Request, runtime: RuntimeDep, by: Caller, model: str | None = None, before: BeforeQuery = None
) -> Response:
    """Show the audit log, newest first."""
    entries = await run_in_threadpool(audit.read, runtime.database, model or None, limit=_PAGE + 1, before=before)
    return page(
        request.scope,
        "audit.html",
        entries=[(iso(entry.at), entry) for entry in entries[:_PAGE]],
        next=entries[_PAGE - 1].id if len(entries) > _PAGE else None,
        model=model or None,
        models=[each.name for each in runtime.models.all() if by.reaches(each.name)],
        of_all=by.reaches(None),
        older=before is not None,
    )


def add_to(router: APIRouter) -> None:
    """Mount the page."""
    router.add_api_route("/audit", audit_page, methods=["GET"])
