"""The audit log: who did what, when."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from service.dashboard.pages import page
from service.operations.revisions import read_audit
from service.rest.dependencies import Caller, RuntimeDep

_PAGE = 50
BeforeQuery = Annotated[int | None, Query(ge=0, lt=2**63)]  # what an id of the database can be


def audit_page(
    request: Request, runtime: RuntimeDep, by: Caller, model: str | None = None, before: BeforeQuery = None
) -> Response:
    """Show the audit log, newest first."""
    listed = read_audit(runtime, model or None, limit=_PAGE, before=before)
    return page(
        request.scope,
        "audit.html",
        entries=[
            (entry, {key: value for key, value in entry.detail.items() if _tells(value)}) for entry in listed.items
        ],
        next=listed.next,
        model=model or None,
        models=[each.name for each in runtime.models.all() if by.reaches(each.name)],
        of_all=by.reaches(None),
        older=before is not None,
    )


def _tells(value: Any) -> bool:
    """Return whether a particular of an entry says anything: 0 does."""
    return value is not False and value not in (None, "", {}, [])


def add_to(router: APIRouter) -> None:
    """Mount the page."""
    router.add_api_route("/audit", audit_page, methods=["GET"])
