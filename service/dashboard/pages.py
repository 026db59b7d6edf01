"""Pages: templates filled in. Everything that is filled in is escaped."""

from __future__ import annotations

import hashlib
import mimetypes
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse, Response

from service.dashboard import words
from service.dashboard.forms import inside
from service.dashboard.session import Visit
from service.errors import CandorError, EpochStaleError, NotFoundError, UnauthenticatedError
from service.operations.principal import LOCAL_ADMINISTRATOR, Principal
from service.rest.bodies import Scope, header
from service.times import spoken
from service.version import VERSION

_HERE: Final = Path(__file__).parent
NOTICES: Final = {
    "activated": "The revision is active now.",
    "rolled-back": "The previous revision is active again.",
    "rejected": "The proposal is rejected.",
    "cancelled": "The job is cancelled.",
}
"""Confirmation that a page shows after a form, by the `notice` parameter of its address."""


def page(scope: Scope, template: str, *, status: int = 200, **content: Any) -> HTMLResponse:
    """Return a page for the sender of a request.

    Args:
        scope: The request's ASGI scope, with its `visit`.
        template: File in `templates/`.
        status: Of the answer.
        **content: What the template names.
    """
    visit: Visit = scope["visit"]
    principal: Principal | None = scope.get("principal")
    text = (
        _environment()
        .get_template(template)
        .render(
            visit=visit,
            principal=principal,
            may=principal.allows if principal else lambda _: False,
            keyless=principal == LOCAL_ADMINISTRATOR,
            here=scope["path"],
            own=quote(scope["path"]),
            address=_address(scope),
            back=_back(scope),
            notice=NOTICES.get(_parameter(_query(scope), "notice")),
            **content,
        )
    )
    return HTMLResponse(text, status, {"cache-control": "no-store"})


def problem(scope: Scope, error: CandorError, status: int, headers: dict[str, str]) -> Response:
    """Return an error as a page that says what to do; without a session, redirect to the login."""
    if isinstance(error, UnauthenticatedError):
        to = f"/dashboard/login?next={quote(_address(scope))}" if scope["method"] == "GET" else "/dashboard/login"
        if header(scope, b"hx-request") is not None:  # a script would put the login page into the middle of this one
            return Response(status_code=status, headers={"hx-redirect": to})
        return RedirectResponse(to, 303)
    response = page(
        scope,
        "problem.html",
        status=status,
        error=error,
        heading=error.title,
        moved=isinstance(error, EpochStaleError),
        missing=isinstance(error, NotFoundError),
    )
    response.headers.update(headers)
    return response


def blank(scope: Scope, status: int, heading: str, headers: dict[str, str]) -> Response:
    """Return an error page with its status only."""
    content = {"error": None, "heading": heading, "moved": False, "missing": status == 404}
    response = page(scope, "problem.html", status=status, **content)
    response.headers.update(headers)
    return response


@cache
def asset(name: str) -> tuple[bytes, str]:
    """Return a static file and its media type.

    Raises:
        KeyError: No file has that name.
    """
    if name not in _assets():
        raise KeyError(name)
    kind = mimetypes.types_map.get(Path(name).suffix, "text/plain")
    content = (_HERE / "static" / name).read_bytes()
    return content, f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def asset_address(name: str) -> str:
    """Return the address of a static file; it changes with the content, so that browsers may cache it."""
    return f"/dashboard/static/{name}?v={hashlib.sha256(asset(name)[0]).hexdigest()[:12]}"


@cache
def _assets() -> frozenset[str]:
    return frozenset(path.name for path in (_HERE / "static").iterdir())


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        words.percent,
        words.number,
        words.amount,
        words.signed,
        words.interval,
        words.count,
        words.stamp,
        words.moment,
    )
    environment.filters.update({function.__name__: function for function in filters})
    environment.filters.update(condition=words.condition, promise=words.promise, calibrator=words.calibrator)
    environment.filters["spoken"] = spoken
    environment.filters["part"] = lambda text: quote(str(text), safe="")
    environment.globals.update(asset=asset_address, version=VERSION, words=words)
    return environment


def _address(scope: Scope) -> str:
    query = _query(scope)
    return quote(scope["path"]) + (f"?{query}" if query else "")


def _back(scope: Scope) -> str:
    """Return the page that a request came from, the front page if that is not known."""
    return inside("/" + (header(scope, b"referer") or "").partition("://")[2].partition("/")[2])


def _query(scope: Scope) -> str:
    query: bytes = scope.get("query_string", b"")
    return query.decode("latin-1")


def _parameter(query: str, name: str) -> str:
    return parse_qs(query).get(name, [""])[0]
