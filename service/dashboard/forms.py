"""Forms of the dashboard: read, checked for their origin, turned into requests of the contract."""

from __future__ import annotations

import hmac
from typing import Final, TypeVar
from urllib.parse import parse_qsl, quote

from fastapi import Request
from pydantic import ValidationError
from starlette.responses import RedirectResponse

from candor.contract.documents import Body
from service.dashboard.session import LONGEST_PATH, Visit
from service.errors import EpochRequiredError, ForbiddenError, MalformedBodyError
from service.places import in_header
from service.rest.bodies import Scope, header
from service.rest.dependencies import epoch_of
from service.rest.problems import invalid

FORM_BYTES: Final = 16 * 1024
"""Maximum size of a form."""
_MOST_FIELDS = 50
B = TypeVar("B", bound=Body)


def check_origin(scope: Scope) -> None:
    """Refuse forms that another site made a browser send, before they are read.

    Raises:
        ForbiddenError: The request does not come from a page of this dashboard.
    """
    site = header(scope, b"sec-fetch-site")
    if site is not None:
        own = site == "same-origin"
    else:  # older browsers, and plain HTTP beyond this machine
        own = (header(scope, b"origin") or "").partition("://")[2] == header(scope, b"host")
    if not own:
        raise _foreign(site or header(scope, b"origin") or "no origin")


async def read(request: Request) -> dict[str, str]:
    """Return the fields of a form that is not empty.

    Raises:
        MalformedBodyError: The body is not a form.
        BodyTooLargeError: It exceeds `FORM_BYTES`.
        ForbiddenError: It does not carry the token of a page of this dashboard.
    """
    if header(request.scope, b"content-encoding") is not None:
        raise MalformedBodyError("A form cannot be compressed.", where=in_header("Content-Encoding"))
    try:
        text = (await request.body()).decode()
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise MalformedBodyError(f"The form cannot be read: {error}.") from None
    fields = {name: value.strip() for name, value in pairs}
    visit: Visit = request.scope["visit"]
    if not hmac.compare_digest(fields.pop("token", "").encode(), visit.token.encode()):
        raise _foreign("another token")
    return {name: value for name, value in fields.items() if value}


def _foreign(found: str) -> ForbiddenError:
    return ForbiddenError(
        "This form does not come from a page of this dashboard, or from one of an earlier session.",
        found=found,
        expected="a form of this dashboard, with its token",
        remedy="Open the page again and repeat it there.",
    )


def epoch(fields: dict[str, str]) -> int:
    """Return the epoch that the page was made at, which the form sends back.

    Raises:
        EpochRequiredError: It is missing.
        InputValueError: It is not an epoch.
    """
    if "epoch" not in fields:
        raise EpochRequiredError("The form lacks the epoch.", where="epoch", remedy="Open the page again.")
    return epoch_of(fields["epoch"])


def body(kind: type[B], **fields: object) -> B:
    """Return a request of the contract, as operations take it.

    Raises:
        InputError: A field is not what it should be.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise invalid({**first, "loc": ("form", *first["loc"])}) from None


def inside(path: str | None) -> str:
    """Return a path of the dashboard as it is, the front page for anything else or longer than `LONGEST_PATH`.

    Example:
        >>> inside("/dashboard/jobs?x=1"), inside("//elsewhere.example/dashboard"), inside("/dashboardx"), inside("//[")
        ('/dashboard/jobs?x=1', '/dashboard', '/dashboard', '/dashboard')
    """
    if path is None or not path.isascii() or not path.isprintable() or "\\" in path or " " in path:
        return "/dashboard"
    page = path.partition("?")[0].partition("#")[0]
    own = page == "/dashboard" or page.startswith("/dashboard/")
    return path if own and "/../" not in f"{page}/" and len(part(path)) <= LONGEST_PATH else "/dashboard"


def see(path: str) -> RedirectResponse:
    """Return a redirect to the page that shows what a form has done."""
    return RedirectResponse(path, 303)


def part(name: str) -> str:
    """Return a name as a part of an address."""
    return quote(name, safe="")
