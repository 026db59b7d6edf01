"""Logging in with an API key or through a provider, logging out, choosing colours; and the files that pages need."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from service.dashboard import forms
from service.dashboard.pages import asset, page
from service.dashboard.session import THEME_COOKIE, Sessions, Visit, cookie_of_login, cookie_of_session
from service.errors import (
    ForbiddenError,
    InputValueError,
    NotFoundError,
    ProviderUnavailableError,
    RateLimitedError,
    UnauthenticatedError,
)
from service.state.sessions import LIFETIME_S, LOGIN_S

_AGAIN_S = "10"  # the provider is not asked sooner
_YEAR_S = 365 * 86_400
_THEMES = ("auto", "light", "dark")


async def ask(request: Request, next: str | None = None) -> Response:  # noqa: A002 — the word in the address
    """Ask for an API key."""
    return _form(request, forms.inside(next))


async def login(request: Request) -> Response:
    """Open a session with an API key."""
    fields = await forms.read(request)
    sessions: Sessions = request.app.state.sessions
    to = forms.inside(fields.get("next"))
    try:
        session = await sessions.open(request.scope, fields.get("key", ""))
    except UnauthenticatedError as error:
        return _form(request, to, str(error), 401)
    except RateLimitedError as error:
        return _form(request, to, f"{error} {error.remedy}", 429)
    response = forms.see(to)
    _set_session(request, response, session, LIFETIME_S)
    return response


async def begin(request: Request, next: str | None = None) -> Response:  # noqa: A002 — the word in the address
    """Send the browser to the identity provider."""
    sessions: Sessions = request.app.state.sessions
    to = forms.inside(next)
    try:
        login, address = await sessions.begin(to)
    except (UnauthenticatedError, ProviderUnavailableError) as error:
        return _form(request, to, f"{error} {error.remedy}", 503 if sessions.people else 404)
    response = RedirectResponse(address, 303, {"cache-control": "no-store"})
    _set_login(request, response, login, LOGIN_S)
    return response


async def arrive(request: Request) -> Response:
    """Open a session for the person whom the identity provider sends back."""
    sessions: Sessions = request.app.state.sessions
    try:
        session, to = await sessions.arrive(request.scope, request.query_params)
    except UnauthenticatedError as error:
        why = f"{error} Found: {error.found}. Expected: {error.expected}. {error.remedy}"
        response = _form(request, "/dashboard", why, 401)
    except ForbiddenError as error:
        response = _form(request, "/dashboard", f"{error} {error.remedy}", 403)
    except ProviderUnavailableError as error:
        response = _form(request, "/dashboard", str(error), 503)
    except RateLimitedError as error:
        response = _form(request, "/dashboard", f"{error} {error.remedy}", 429)
    else:
        # Not a redirect: browsers count it to the provider's page, and send it no cookie that is for this site alone.
        response = page(request.scope, "arrived.html", to=forms.inside(to))
        _set_session(request, response, session, LIFETIME_S)
    _set_login(request, response, "", 0)
    return response


async def logout(request: Request) -> Response:
    """End the session."""
    await forms.read(request)
    sessions: Sessions = request.app.state.sessions
    await sessions.end(request.scope)
    response = forms.see("/dashboard/login")
    _set_session(request, response, "", 0)
    return response


async def theme(request: Request) -> Response:
    """Store the colour theme."""
    fields = await forms.read(request)
    wanted = fields.get("theme")
    if wanted not in _THEMES:
        raise InputValueError("Unknown colour theme.", where="theme", found=wanted, expected=list(_THEMES))
    response = forms.see(forms.inside(fields.get("back")))
    _set_cookie(request, response, THEME_COOKIE, wanted, 0 if wanted == "auto" else _YEAR_S)
    return response


async def static(name: str) -> Response:
    """Return a stylesheet, script or picture."""
    try:
        content, kind = asset(name)
    except KeyError:
        raise NotFoundError(f"Unknown file {name!r}.", found=name) from None
    return Response(content, media_type=kind, headers={"cache-control": "public, max-age=31536000, immutable"})


def _form(request: Request, to: str, why: str | None = None, status: int = 200) -> Response:
    sessions: Sessions = request.app.state.sessions
    content = {"to": to, "why": why, "plain": request.url.scheme == "http", "people": sessions.people is not None}
    response = page(request.scope, "login.html", status=status, **content)
    if status == 503:
        response.headers["retry-after"] = _AGAIN_S
    return response


def _set_session(request: Request, response: Response, text: str, seconds: int) -> None:
    visit: Visit = request.scope["visit"]
    name, path = cookie_of_session(secure=visit.secure)
    _set_cookie(request, response, name, text, seconds, path)


def _set_login(request: Request, response: Response, text: str, seconds: int) -> None:
    visit: Visit = request.scope["visit"]
    name, path = cookie_of_login(secure=visit.secure)
    _set_cookie(request, response, name, text, seconds, path, "lax")  # the provider's page leads to the callback


def _set_cookie(
    request: Request,
    response: Response,
    name: str,
    value: str,
    seconds: int,
    path: str = "/dashboard",
    samesite: Literal["strict", "lax"] = "strict",
) -> None:
    visit: Visit = request.scope["visit"]
    response.set_cookie(name, value, max_age=seconds, path=path, secure=visit.secure, httponly=True, samesite=samesite)


def add_to(router: APIRouter) -> None:
    """Mount the forms and files."""
    router.add_api_route("/login", ask, methods=["GET"])
    router.add_api_route("/login", login, methods=["POST"])
    router.add_api_route("/login/begin", begin, methods=["GET"])
    router.add_api_route("/login/callback", arrive, methods=["GET"])
    router.add_api_route("/logout", logout, methods=["POST"])
    router.add_api_route("/theme", theme, methods=["POST"])
    router.add_api_route("/static/{name}", static, methods=["GET"])
